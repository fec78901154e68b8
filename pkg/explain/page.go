package explain

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"time"

	"perago/pkg/txn"
)

//go:embed page.html
var pageText string

// Page writes an explanation as one HTML page that needs nothing else: the
// attempts on a line of time, and the branch's history.
func (e Explanation) Page(to io.Writer) error {
	place := e.timeline()
	page, err := template.New("page").Funcs(template.FuncMap{
		"time":         clock,
		"place":        place,
		"attemptClass": attemptClass,
		"refused":      func(a Attempt) bool { return a.Outcome == txn.OutcomeRefused || a.Outcome == txn.OutcomeRaced },
		"commitClass":  e.commitClass,
		"theirs":       func(c Entry) bool { return c.Workflow != "" && c.Workflow != e.Workflow },
		"foreign":      func(c Entry) bool { return c.Kind == Foreign && c.Message != "" },
	}).Parse(pageText)
	if err != nil {
		return err
	}
	return page.Execute(to, e)
}

func clock(at any) (string, error) {
	switch at := at.(type) {
	case time.Time:
		return at.Format(time.RFC3339), nil
	case *time.Time:
		return at.Format(time.RFC3339), nil
	}
	return "", fmt.Errorf("%T is no time", at)
}

// timeline gives the place of an attempt between the first and the last one's
// begin, in percent; empty where it has none.
func (e Explanation) timeline() func(Attempt) string {
	var first, last time.Time
	count := 0
	each := func(all []Attempt) {
		for _, a := range all {
			if a.Started == nil {
				continue
			}
			if count == 0 || a.Started.Before(first) {
				first = *a.Started
			}
			if count == 0 || a.Started.After(last) {
				last = *a.Started
			}
			count++
		}
	}
	for _, step := range e.Steps {
		each(step.Attempts)
	}
	each(e.Others)
	return func(a Attempt) string {
		if a.Started == nil || !last.After(first) {
			return ""
		}
		// Within the line, so that no dot stands over its ends.
		return fmt.Sprintf("%.1f", 2+96*float64(a.Started.Sub(first))/float64(last.Sub(first)))
	}
}

func attemptClass(a Attempt) string {
	switch {
	case a.Status == txn.TaskCompleted:
		return "good"
	case a.Status.Open():
		return "wait"
	}
	return "bad"
}

func (e Explanation) commitClass(c Entry) string {
	switch {
	case c.Kind == Publication && c.Workflow == e.Workflow:
		return "mine"
	case c.Kind == Publication, c.Kind == Settled:
		return "other"
	}
	return "bad"
}
