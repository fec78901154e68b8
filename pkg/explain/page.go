package explain

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"regexp"
	"slices"
	"strconv"
	"time"

	"perago/pkg/txn"
)

//go:embed page.html
var pageText string

// Page writes an explanation as one HTML page that needs nothing else: the
// attempts as bars on an axis of time, each step, and the branch's history.
func (e Explanation) Page(to io.Writer) error {
	page, err := template.New("page").Funcs(template.FuncMap{
		"time":         clock,
		"ids":          shortened,
		"attemptClass": attemptClass,
		"refused":      func(a Attempt) bool { return a.Outcome == txn.OutcomeRefused || a.Outcome == txn.OutcomeRaced },
		"commitClass":  func(of Explanation, c Entry) string { return of.commitClass(c) },
		"theirs":       func(of Explanation, c Entry) bool { return c.Workflow != "" && c.Workflow != of.Workflow },
		"foreign":      func(c Entry) bool { return c.Kind == Foreign && c.Message != "" },
		"withoutSteps": Explanation.withoutSteps,
	}).Parse(pageText)
	if err != nil {
		return err
	}
	return page.Execute(to, struct {
		Explanation
		Timeline timeline
	}{e, e.timeline()})
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

var commitIDs = regexp.MustCompile(`\b[0-9a-f]{64}\b`)

// shortened is a text as HTML, with short commit ids that give the whole one on
// hover.
func shortened(text any) template.HTML {
	escaped := template.HTMLEscapeString(fmt.Sprint(text))
	return template.HTML(commitIDs.ReplaceAllStringFunc(escaped, func(id string) string { //nolint:gosec // It is escaped, and an id is hex digits.
		return fmt.Sprintf(`<code title="%s">%s</code>`, id, txn.CommitID(id).Short())
	}))
}

// timeline is every attempt, in the order in which they began, on one axis.
type timeline struct {
	Rows  []row
	Ticks []tick
}

// row is an attempt with its bar: Left and Width are in percent of the axis, empty
// where it did not begin.
type row struct {
	Attempt
	// Of is the sub-workflow that it is of; empty for the workflow itself.
	Of          txn.WorkflowID
	Left, Width string
	Took        string
	begin, end  time.Time
}

// tick is a mark of the axis: the time since its beginning.
type tick struct{ Left, Label string }

// timeline puts the attempts of a workflow and of its sub-workflows on an axis.
func (e Explanation) timeline() timeline {
	var t timeline
	var add func(of Explanation, sub txn.WorkflowID)
	add = func(of Explanation, sub txn.WorkflowID) {
		all := slices.Concat(of.Others, of.Users)
		for _, step := range of.Steps {
			all = append(all, step.Attempts...)
		}
		for _, a := range all {
			r := row{Attempt: a, Of: sub}
			if a.Started != nil {
				r.begin, r.end = *a.Started, *a.Started
				switch {
				case a.Ended != nil && a.Ended.After(r.begin):
					r.end = *a.Ended
				case a.Status.Open() && e.now.After(r.begin):
					r.end = e.now
				}
			}
			t.Rows = append(t.Rows, r)
		}
		for _, below := range of.Subs {
			add(below, below.Workflow)
		}
	}
	add(e, "")
	slices.SortStableFunc(t.Rows, func(a, b row) int {
		switch {
		case a.begin.IsZero() != b.begin.IsZero():
			if a.begin.IsZero() {
				return 1
			}
			return -1
		default:
			return a.begin.Compare(b.begin)
		}
	})
	var first, last time.Time
	for _, r := range t.Rows {
		if r.begin.IsZero() {
			continue
		}
		if first.IsZero() {
			first = r.begin
		}
		if r.end.After(last) {
			last = r.end
		}
	}
	span := last.Sub(first)
	if span <= 0 {
		return t
	}
	percent := func(d time.Duration) string { return strconv.FormatFloat(100*float64(d)/float64(span), 'f', 2, 64) }
	for i := range t.Rows {
		if r := &t.Rows[i]; !r.begin.IsZero() {
			r.Left, r.Width, r.Took = percent(r.begin.Sub(first)), percent(r.end.Sub(r.begin)), took(r.end.Sub(r.begin))
			if r.Status.Open() {
				r.Took += " so far"
			}
		}
	}
	const ticks = 4
	for i := range ticks + 1 {
		at := span * time.Duration(i) / ticks
		t.Ticks = append(t.Ticks, tick{percent(at), "+" + took(at)})
	}
	return t
}

// took is a duration for people: three digits are enough.
func took(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
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
