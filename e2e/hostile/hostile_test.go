package hostile

import (
	"flag"
	"maps"
	"math/rand/v2"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"perago/pkg/telemetry"
	"perago/pkg/txn"
)

var (
	full   = flag.Bool("full", false, "run every case, not a sample of them")
	only   = flag.String("only", "", "run the cases whose name matches this expression")
	seed   = flag.Uint64("seed", 0, "draw the cases by this number; 0 draws one")
	period = flag.Duration("for", 0, "begin no case after this time")
)

// casesOf are all lies for the calls of a flow that no flow before it has, and for
// its merge.
func casesOf(of flow, honest *result, known map[call]bool, random *rand.Rand) []lie {
	var all []lie
	add := func(c call, a answer) {
		like := honest.honest[c]
		if a.fits != nil && !a.fits(c, like) {
			return
		}
		acts := []bool{false, true}
		if c.reads() || a.acted {
			// There is nothing to do, or the server's own answer is what is changed.
			acts = []bool{true}
		}
		for _, acted := range acts {
			one := lie{flow: of, call: c, like: like, answer: a, acts: acted}
			if a.change == "" && !a.large || a.change != "" && c.reads() {
				all = append(all, one)
			}
			if one.nth = 1; acted {
				one.nth += random.IntN(honest.seen[c])
			}
			if a.change == "" || !c.reads() {
				all = append(all, one)
			}
		}
	}
	list := answers()
	for _, c := range slices.SortedFunc(maps.Keys(honest.seen), func(a, b call) int { return strings.Compare(a.String(), b.String()) }) {
		if known[c] && !strings.Contains(c.kind, "/merge/") {
			continue
		}
		known[c] = true
		for _, a := range list {
			add(c, a)
		}
		for _, a := range fieldChanges(honest.honest[c], strings.Repeat("a", 64)) {
			add(c, a)
		}
	}
	return all
}

// sample draws cases: each answer of the list at some calls, each change of a field
// at some fields, and each call with some answers.
func sample(cases []lie, random *rand.Rand) []lie {
	random.Shuffle(len(cases), func(i, j int) { cases[i], cases[j] = cases[j], cases[i] })
	const ofAnswer, ofChange, ofCall = 1, 1, 1
	answered, calls := map[string]int{}, map[call]int{}
	var drawn []lie
	for _, one := range cases {
		name, enough := one.answer.name, ofAnswer
		if one.answer.change != "" {
			name, enough = one.answer.change, ofChange
		}
		if answered[name] < enough || calls[one.call] < ofCall {
			answered[name]++
			calls[one.call]++
			drawn = append(drawn, one)
		}
	}
	return drawn
}

// missing are the answers of the list, and the changes of fields, that met no call.
func missing(met []lie) []string {
	left := map[string]bool{}
	for _, a := range answers() {
		left[a.name] = true
	}
	for _, c := range changes {
		left[c.name] = true
	}
	for _, one := range met {
		delete(left, one.answer.name)
		delete(left, one.answer.change)
	}
	return slices.Sorted(maps.Keys(left))
}

// Every answer of the list, at calls that are drawn anew each time. With -full every
// case there is, for as long as -for says.
func TestHostileServers(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64N(1 << 32)
	}
	t.Logf("-seed %d", *seed)
	random := rand.New(rand.NewPCG(*seed, 0))
	metrics, root, began := telemetry.NewMetrics(), t.TempDir(), time.Now()

	var cases []lie
	known := map[call]bool{}
	for _, f := range flows {
		honest := run(t, root, metrics, f, nil)
		if len(honest.problems) > 0 || honest.workflow.Status != txn.WorkflowCompleted || !honest.published {
			t.Fatalf("the %s chain, which nobody lies in: %v\n%s\n%s", f, honest.problems, describe(honest.workflow), honest.log)
		}
		cases = append(cases, casesOf(f, honest, known, random)...)
	}
	total := len(cases)
	switch {
	case *only != "":
		expression, err := regexp.Compile(*only)
		if err != nil {
			t.Fatal(err)
		}
		cases = slices.DeleteFunc(cases, func(l lie) bool { return !expression.MatchString(l.String()) })
	case *full:
		random.Shuffle(len(cases), func(i, j int) { cases[i], cases[j] = cases[j], cases[i] })
	default:
		cases = sample(cases, random)
	}

	var all judged
	t.Run("lanes", func(t *testing.T) {
		for lane := range runtime.GOMAXPROCS(0) {
			t.Run(strconv.Itoa(lane), func(t *testing.T) {
				t.Parallel()
				for *period == 0 || time.Since(began) < *period {
					one, ok := all.next(cases)
					if !ok {
						return
					}
					all.add(run(t, root, metrics, one.flow, &one))
				}
			})
		}
	})
	for _, got := range all.wrong {
		t.Errorf("%s: %s\n%s", got.lie, strings.Join(got.problems, "; "), describe(got.workflow))
		if *only != "" {
			t.Log(got.log)
		}
	}
	if left := missing(all.met); len(left) > 0 && *only == "" && *period == 0 {
		t.Errorf("answers that met no call: %q", left)
	}
	t.Logf("hostile: %d of %d cases, %d violations; %d completed, %d failed closed, %d waited for an operator, %d believed; %s",
		len(all.met), total, len(all.wrong), all.completed, all.failed, all.waited, all.believed, time.Since(began).Round(time.Millisecond))
}

// judged is what came of the cases so far.
type judged struct {
	mu    sync.Mutex
	taken int
	met   []lie
	wrong []*result
	// completed, failed closed, or went on until an operator ended it; and of all,
	// those that end with what only the liar knows to be wrong.
	completed, failed, waited, believed int
}

// next is the case that nobody has taken yet.
func (j *judged) next(cases []lie) (lie, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.taken == len(cases) {
		return lie{}, false
	}
	j.taken++
	return cases[j.taken-1], true
}

func (j *judged) add(got *result) {
	if got.met == 0 {
		got.problem("the lie met no request")
	}
	if got.waited && !got.lie.call.background() && !got.lie.answer.unending {
		got.problem("it does not end")
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.met = append(j.met, *got.lie)
	switch {
	case got.waited:
		j.waited++
	case got.workflow.Status == txn.WorkflowCompleted:
		j.completed++
	default:
		j.failed++
	}
	if got.believed != "" {
		j.believed++
	}
	if len(got.problems) > 0 {
		j.wrong = append(j.wrong, got)
	}
}
