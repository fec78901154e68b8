package explain

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Text writes an explanation for people.
func (e Explanation) Text(to io.Writer) error {
	var t strings.Builder
	line := func(format string, arguments ...any) {
		for i, a := range arguments {
			arguments[i] = plain(fmt.Sprint(a))
		}
		fmt.Fprintf(&t, format+"\n", arguments...)
	}
	attempts := func(all []Attempt) {
		for _, a := range all {
			started := "-"
			if a.Started != nil {
				started = a.Started.Format(time.RFC3339)
			}
			line("  %s, retry %s, %s, %s: %s", a.Name, a.Retry, started, a.Status, a.Result)
		}
	}
	line("workflow %s (%s) is %s%s", e.Workflow, e.Name, e.Status, because(e.Reason))
	if len(e.Steps) == 0 {
		line("\nNo step of it has begun: nothing is staged or published.")
	}
	for _, s := range e.Steps {
		line("\nstep %s: %s of lakefs://%s/%s, from %s", s.Step, s.Prefix, s.Repository, s.Branch, s.InputRef)
		line("  %s: %s", s.State, s.Summary)
		attempts(s.Attempts)
		for _, open := range s.Open {
			line("  open: %s: %s", open.Branch, open.Why)
		}
	}
	if len(e.Others) > 0 {
		line("\nother tasks of perago's")
		attempts(e.Others)
	}
	for _, h := range e.Targets {
		line("\nlakefs://%s/%s is at %s", h.Repository, h.Branch, h.Head)
		for _, c := range h.Commits {
			what := string(c.Kind)
			switch {
			case c.Workflow == e.Workflow:
				what = fmt.Sprintf("%s of %s, retry %d", c.Kind, c.Step, c.Retry)
			case c.Workflow != "":
				what = fmt.Sprintf("%s of another workflow, %s", c.Kind, c.Workflow)
			case c.Kind == Foreign:
				what = fmt.Sprintf("foreign, %s: %s", c.Why, c.Message)
			}
			if c.Supersedes != "" {
				what += ", supersedes " + c.Supersedes.Short()
			}
			line("  %s, %s: %s", c.Commit, c.Created.Format(time.RFC3339), what)
		}
	}
	if len(e.Problems) > 0 {
		line("\nnot read, so less is known")
	}
	for _, problem := range e.Problems {
		line("  %s", problem)
	}
	switch {
	case len(e.Next) > 0:
		line("\nwhat to do")
	case len(e.Problems) == 0:
		line("\nThere is nothing to do.")
	}
	for _, next := range e.Next {
		line("  %s", next)
	}
	_, err := io.WriteString(to, t.String())
	return err
}

// plain keeps what servers say from breaking a line or a terminal.
func plain(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}
