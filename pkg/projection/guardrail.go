package projection

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"perago/pkg/txn"
)

// Guardrails are demands on a projection, ready to be checked. They look at
// paths relative to the prefix, so that a directory and a listing of lakeFS are
// checked by the same code.
type Guardrails struct {
	list []txn.Guardrail
	// bounded: one of them is about what is removed, which only a comparison
	// with the input ref tells.
	bounded bool
}

// NewGuardrails takes the guardrails of a task's input. A pattern that is not
// well formed is a *txn.TerminalError.
//
// In a pattern, * and ? stand for anything but a slash, ** for any number of
// directories, [a-z] for one of a class and {a,b} for either; a backslash takes
// the meaning from the next character. A name that begins with a dot is like any
// other, and case counts.
func NewGuardrails(list []txn.Guardrail) (Guardrails, error) {
	g := Guardrails{list: list}
	for i, one := range list {
		field, pattern := "", ""
		switch {
		case one.RequireGlob != nil:
			field, pattern = "require_glob.pattern", one.RequireGlob.Pattern
		case one.ForbidGlob != "":
			field, pattern = "forbid_glob", one.ForbidGlob
		case one.MaxRemoved != nil:
			g.bounded = true
		}
		if !doublestar.ValidatePattern(pattern) {
			return Guardrails{}, txn.Terminalf(fmt.Sprintf("guardrails[%d].%s", i, field), "%q is not a well-formed pattern", pattern)
		}
	}
	return g, nil
}

// Bounded reports whether a guardrail is about what is removed.
func (g Guardrails) Bounded() bool { return g.bounded }

// Violation is a guardrail that does not hold, as a sentence.
type Violation string

// mostOffenders bounds the paths that one violation names.
const mostOffenders = 5

// Check reads the paths of a projection's files, in byte order and relative to
// the prefix, and gives the violations of the guardrails about files, in the
// guardrails' order. It fails only when the context ends, which it looks at before
// each match: there may be a million paths and a hundred patterns.
func (g Guardrails) Check(ctx context.Context, paths iter.Seq[string]) ([]Violation, error) {
	counts := make([]int, len(g.list))
	offenders := make([][]string, len(g.list))
	forbidden := func(i int, path string) {
		counts[i]++
		if len(offenders[i]) < mostOffenders {
			offenders[i] = append(offenders[i], path)
		}
	}
	last := ""
	for path := range paths {
		for i, one := range g.list {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			switch {
			case one.RequireFile != "" && path == one.RequireFile,
				one.RequireDir != "" && strings.HasPrefix(path, one.RequireDir+"/"),
				one.RequireGlob != nil && matches(one.RequireGlob.Pattern, path):
				counts[i]++
			case one.ForbidGlob != "":
				for directory := range newDirectories(last, path) {
					if ctx.Err() != nil {
						return nil, context.Cause(ctx)
					}
					if matches(one.ForbidGlob, directory) {
						forbidden(i, directory+"/")
					}
				}
				if matches(one.ForbidGlob, path) {
					forbidden(i, path)
				}
			}
		}
		last = path
	}

	var all []Violation
	violated := func(format string, arguments ...any) { all = append(all, Violation(fmt.Sprintf(format, arguments...))) }
	for i, one := range g.list {
		switch {
		case one.RequireFile != "" && counts[i] == 0:
			violated("require_file %q: there is no such file", one.RequireFile)
		case one.RequireDir != "" && counts[i] == 0:
			violated("require_dir %q: there is no file in such a directory", one.RequireDir)
		case one.RequireGlob != nil && counts[i] < one.RequireGlob.Min:
			violated("require_glob %q: %d files match, at least %d must", one.RequireGlob.Pattern, counts[i], one.RequireGlob.Min)
		case one.RequireGlob != nil && one.RequireGlob.Max != nil && counts[i] > *one.RequireGlob.Max:
			violated("require_glob %q: %d files match, at most %d may", one.RequireGlob.Pattern, counts[i], *one.RequireGlob.Max)
		case one.ForbidGlob != "" && counts[i] > 0:
			named := make([]string, len(offenders[i]))
			for j, path := range offenders[i] {
				named[j] = fmt.Sprintf("%q", path)
			}
			more := ""
			if counts[i] > len(named) {
				more = fmt.Sprintf(" and %d more", counts[i]-len(named))
			}
			violated("forbid_glob %q: matched by %s%s", one.ForbidGlob, strings.Join(named, ", "), more)
		}
	}
	return all, nil
}

// CheckRemoved gives the violations of the guardrails about what is removed:
// removed of the total objects that the input ref holds under the prefix.
func (g Guardrails) CheckRemoved(removed, total int) []Violation {
	var all []Violation
	for _, one := range g.list {
		if one.MaxRemoved == nil {
			continue
		}
		if most := one.MaxRemoved.Count; most != nil && removed > *most {
			all = append(all, Violation(fmt.Sprintf("max_removed.count: %d of %d objects would be removed, at most %d may", removed, total, *most)))
		}
		if most := one.MaxRemoved.Fraction; most != nil && float64(removed) > *most*float64(total) {
			all = append(all, Violation(fmt.Sprintf("max_removed.fraction: %d of %d objects would be removed, at most the part %g may", removed, total, *most)))
		}
	}
	return all
}

// matches reports whether a pattern that was found to be well formed matches a
// whole path.
func matches(pattern, path string) bool {
	matched, err := doublestar.Match(pattern, path)
	return err == nil && matched
}

// newDirectories gives the directories of a path that are not those of the path
// before it, outermost first. In byte order the files below one directory stand
// together, so that each directory comes once.
func newDirectories(before, path string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range len(path) {
			if path[i] == '/' && !strings.HasPrefix(before, path[:i+1]) && !yield(path[:i]) {
				return
			}
		}
	}
}

// Paths gives the paths of a tree, as Guardrails.Check reads them. It ends at an
// error, which it leaves in failed.
func Paths(tree *Tree, failed *error) iter.Seq[string] {
	return func(yield func(string) bool) {
		for entry, err := range tree.All() {
			if err != nil {
				*failed = err
				return
			}
			if !yield(entry.Path) {
				return
			}
		}
	}
}

// GuardrailError is every guardrail that does not hold, in one message.
type GuardrailError struct{ Violations []Violation }

func (e *GuardrailError) Error() string {
	texts := make([]string, len(e.Violations))
	for i, violation := range e.Violations {
		texts[i] = string(violation)
	}
	return "guardrails: " + strings.Join(texts, "; ")
}
