package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"perago/pkg/definition"
	"perago/taskdefs"
)

func (e *environment) budget() *cobra.Command {
	var from []string
	command := &cobra.Command{
		Use:   "budget [FILE]",
		Short: "Show the arithmetic of a publish budget, or propose one from what merges took",
		Long: `Shows the two rules of the publish budget in a TaskDef: with a file of one, else the
shipped one. It ends with exit code 1 when a rule is broken; a worker would not poll the
type.

--from-metrics reads the /metrics of a publish worker, once or several times for several
workers, and prints the TaskDef with the budget that follows from what merges took:
the 99th percentile, rounded up to the end of its bucket, with the margin of the file,
and the least lease that covers it. All the rest of the file comes out as it is. The
arithmetic is on standard error. Nothing is registered.`,
		Example: `  perago budget
  perago budget my_publish.json
  perago budget --from-metrics http://127.0.0.1:9462/metrics > my_publish.json`,
		Args: func(_ *cobra.Command, arguments []string) error {
			if len(arguments) > 1 {
				return fmt.Errorf("perago budget takes one file, but was given %d", len(arguments))
			}
			return nil
		},
		RunE: func(command *cobra.Command, arguments []string) error {
			ctx, cancel := context.WithTimeout(command.Context(), e.timeout)
			defer cancel()
			return e.runBudget(ctx, arguments, from)
		},
	}
	command.Flags().StringArrayVar(&from, "from-metrics", nil, "`address` of a publish worker's metrics")
	return command
}

func (e *environment) runBudget(ctx context.Context, arguments, from []string) error {
	source := "taskdefs/perago_publish.json"
	text, err := taskdefs.Files.ReadFile("perago_publish.json")
	if len(arguments) == 1 {
		source = arguments[0]
		text, err = os.ReadFile(source)
	}
	if err != nil {
		return err
	}
	if len(from) > 0 {
		return e.propose(ctx, source, text, from)
	}
	d, rules, err := budgetOf(source, text)
	if err != nil {
		return err
	}
	if e.out.format == formatJSON {
		err = e.out.json(struct {
			File  string                  `json:"file"`
			Name  string                  `json:"name"`
			Rules []definition.BudgetRule `json:"rules"`
		}{source, d.Name, rules})
	} else {
		var rows [][]string
		for _, rule := range rules {
			holds := "holds"
			if !rule.Holds {
				holds = "broken"
			}
			number := func(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }
			rows = append(rows, []string{rule.Name, number(rule.Has), number(rule.Needs), holds, rule.String()})
		}
		err = e.out.rows([]string{"NUMBER", "IS", "NEEDS", "RULE", "ARITHMETIC"}, rows)
	}
	if err != nil {
		return err
	}
	return d.Check()
}

func budgetOf(source string, text []byte) (definition.Definition, []definition.BudgetRule, error) {
	definitions, err := definition.Parse(source, text)
	if err != nil {
		return definition.Definition{}, nil, err
	}
	if len(definitions) != 1 {
		return definition.Definition{}, nil, fmt.Errorf("%s holds %d definitions; give a file with one publish TaskDef", source, len(definitions))
	}
	rules, err := definition.BudgetRules(definitions[0])
	return definitions[0], rules, err
}

// propose prints the TaskDef that follows from what publish workers measured.
func (e *environment) propose(ctx context.Context, source string, text []byte, from []string) error {
	times := definition.MergeTimes{}
	for _, address := range from {
		if err := readMetrics(ctx, address, times); err != nil {
			return err
		}
	}
	p99, err := times.P99()
	if err != nil {
		return err
	}
	proposed, err := definition.ProposeBudget(source, text, p99)
	if err != nil {
		return err
	}
	_, rules, err := budgetOf(source, proposed)
	if err != nil {
		return err
	}
	if _, err := e.out.to.Write(proposed); err != nil {
		return err
	}
	few := ""
	if times.Count() < fewMerges {
		few = "; that is few for a 99th percentile, look again later"
	}
	fmt.Fprintf(e.stderr, "perago: 99 of 100 merges took at most %g seconds, of %s%s\n", p99, count(int(times.Count()), "merge", "merges"), few)
	for _, rule := range rules {
		fmt.Fprintln(e.stderr, "perago: "+rule.String())
	}
	return nil
}

// fewMerges is how many merges a 99th percentile should be of, at least: with
// fewer than a hundred it is the slowest one.
const fewMerges = 1000

// mostMetrics bounds the answer that is read.
const mostMetrics = 16 << 20

func readMetrics(ctx context.Context, address string, times definition.MergeTimes) error {
	fail := func(err error) error { return fmt.Errorf("read the metrics at %s: %w", printable(address), err) }
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil || !strings.HasPrefix(request.URL.Scheme, "http") || request.URL.Host == "" {
		return fmt.Errorf("--from-metrics is not an address such as http://127.0.0.1:9462/metrics")
	}
	if request.URL.User != nil {
		return errors.New("--from-metrics must not hold a user or password")
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err // it names the address
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fail(fmt.Errorf("answered %d", response.StatusCode))
	}
	if err := times.Add(io.LimitReader(response.Body, mostMetrics)); err != nil {
		return fail(err)
	}
	return nil
}
