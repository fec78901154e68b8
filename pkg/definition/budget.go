package definition

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"perago/pkg/txn"
)

// BudgetRule is one of the two rules of a publish budget, in numbers. All are
// seconds.
type BudgetRule struct {
	// Name is the field that must be large enough, Has its value.
	Name string  `json:"name"`
	Has  float64 `json:"has"`
	// Needs is the sum of the terms.
	Needs float64      `json:"needs"`
	Terms []BudgetTerm `json:"terms"`
	Holds bool         `json:"holds"`
}

// BudgetTerm is one number of a sum.
type BudgetTerm struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

// BudgetRules is the arithmetic of a publish TaskDef. Whether it is sound is
// txn.CheckPublishDefinition's to say, and the workers'.
func BudgetRules(d Definition) ([]BudgetRule, error) {
	if d.Kind != Task || !txn.TaskType(d.Name).IsPublish() {
		return nil, fmt.Errorf("%s: %s is no publish TaskDef; their names begin with %s", d.Source, d, txn.TypePublish)
	}
	read, err := d.TaskDefinition()
	if err != nil {
		return nil, err
	}
	b, err := txn.BudgetOf(read)
	if err != nil {
		return nil, err
	}
	rule := func(name string, has float64, terms ...BudgetTerm) BudgetRule {
		r := BudgetRule{Name: name, Has: has, Terms: terms}
		for _, term := range terms {
			r.Needs += term.Value
		}
		r.Needs = math.Round(r.Needs*1e6) / 1e6
		r.Holds = r.Has >= r.Needs
		return r
	}
	term := func(name string, d time.Duration) BudgetTerm { return BudgetTerm{name, d.Seconds()} }
	return []BudgetRule{
		rule("lakefs_merge_timeout_seconds", b.MergeTimeout.Seconds(),
			term("observed_merge_p99_seconds", b.ObservedMergeP99), term("safety_margin_seconds", b.SafetyMargin)),
		rule("responseTimeoutSeconds", float64(read.ResponseTimeoutSeconds),
			term("lakefs_merge_timeout_seconds", b.MergeTimeout), term("conductor_completion_timeout_seconds", b.CompletionTimeout),
			term("worker_shutdown_grace_seconds", b.ShutdownGrace), term("heartbeat_interval_seconds", b.HeartbeatInterval)),
	}, nil
}

// String is the rule as it would be written by hand.
func (r BudgetRule) String() string {
	var terms []string
	for _, term := range r.Terms {
		terms = append(terms, fmt.Sprintf("%g (%s)", term.Value, term.Name))
	}
	sign := ">="
	if !r.Holds {
		sign = "<"
	}
	return fmt.Sprintf("%g (%s) %s %s = %g", r.Has, r.Name, sign, strings.Join(terms, " + "), r.Needs)
}

// ProposeBudget writes an observed merge time into a publish TaskDef and makes
// the merge timeout and the response timeout follow from it by the two rules. All
// the rest of the text stays as it is. p99 is in seconds.
func ProposeBudget(source string, text []byte, p99 float64) ([]byte, error) {
	definitions, err := Parse(source, text)
	if err != nil {
		return nil, err
	}
	root, err := parseTree(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	if len(definitions) != 1 || len(root.members) == 0 {
		return nil, fmt.Errorf("%s holds %d definitions in a list; give a file with one publish TaskDef", source, len(definitions))
	}
	rules, err := BudgetRules(definitions[0])
	if err != nil {
		return nil, err
	}
	// As milliseconds, so that a sum of fractions is the number people would write.
	tidy := func(seconds float64) float64 { return math.Round(seconds*1000) / 1000 }
	merge := tidy(p99 + rules[0].Terms[1].Value)
	response := merge
	for _, term := range rules[1].Terms[1:] {
		response += term.Value
	}
	budget := root.member("inputTemplate").member("budget")
	var edits []edit
	for _, number := range []struct {
		in    *node
		value float64
	}{
		{budget.member("observed_merge_p99_seconds"), p99}, {budget.member("lakefs_merge_timeout_seconds"), merge},
		{root.member("responseTimeoutSeconds"), math.Ceil(tidy(response))},
	} {
		if number.in == nil {
			return nil, fmt.Errorf("%s has no responseTimeoutSeconds; add it", source)
		}
		edits = append(edits, edit{number.in.start, number.in.end, strconv.FormatFloat(number.value, 'f', -1, 64)})
	}
	proposed := applyEdits(text, edits)
	if definitions, err = Parse(source, proposed); err == nil {
		_, err = BudgetRules(definitions[0])
	}
	if err != nil {
		return nil, fmt.Errorf("merges of %g seconds fit into no budget: %w", p99, err)
	}
	return proposed, nil
}

// MergeTimes is a histogram of merge times: how many took at most so long. The
// last bound is infinite.
type MergeTimes map[float64]uint64

const mergeTimes = "perago_merge_duration_seconds"

// mostMerges is as far as a float64 counts.
const mostMerges = 1 << 53

// Add adds what a publish worker's /metrics says, in Prometheus's text format.
func (m MergeTimes) Add(metrics io.Reader) error {
	found := false
	lines := bufio.NewScanner(metrics)
	for lines.Scan() {
		rest, ok := strings.CutPrefix(lines.Text(), mergeTimes+"_bucket{")
		if !ok {
			continue
		}
		labels, value, _ := strings.Cut(rest, "}")
		_, bound, ok := strings.Cut(","+labels, `,le="`)
		bound, _, closed := strings.Cut(bound, `"`)
		// A time may follow the value.
		fields := strings.Fields(value)
		if !ok || !closed || len(fields) == 0 {
			return fmt.Errorf("%q is no bucket of a histogram", lines.Text())
		}
		upper, err := strconv.ParseFloat(bound, 64)
		if err != nil {
			return fmt.Errorf("%q is no bucket of a histogram: %w", lines.Text(), err)
		}
		number, err := strconv.ParseFloat(fields[0], 64)
		// So put that NaN, which is in no order, is none either.
		if err != nil || !(upper >= 0 && number >= 0 && number <= mostMerges) {
			return fmt.Errorf("%q is no bucket of a histogram", lines.Text())
		}
		m[upper] += uint64(number)
		found = true
	}
	if err := lines.Err(); err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("there is no %s in it; is it the /metrics of a publish worker?", mergeTimes)
	}
	return nil
}

// Count is how many merges there were.
func (m MergeTimes) Count() uint64 { return m[math.Inf(1)] }

// P99 is what 99 of 100 merges took at most, in seconds, rounded up to a tenth:
// the end of the bucket that it lies in, for nothing says where in it. It fails
// when there was no merge, or when it lies above the last bound.
func (m MergeTimes) P99() (float64, error) {
	count := m.Count()
	if count == 0 {
		return 0, fmt.Errorf("no merge has been measured yet; look again after a day with the usual load")
	}
	var bounds []float64
	for bound := range m {
		bounds = append(bounds, bound)
	}
	slices.Sort(bounds)
	for i, bound := range bounds {
		if float64(m[bound]) < 0.99*float64(count) {
			continue
		}
		if math.IsInf(bound, 1) {
			last := "the first bound"
			if i > 0 {
				last = fmt.Sprintf("%g seconds", bounds[i-1])
			}
			return 0, fmt.Errorf("more than 1 of 100 merges took longer than %s, the last bound that is measured; find out why before you give them more time", last)
		}
		return math.Ceil(bound*10-1e-9) / 10, nil
	}
	return 0, fmt.Errorf("the buckets of %s are not cumulative", mergeTimes)
}
