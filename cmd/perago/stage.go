package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"perago/pkg/config"
	"perago/pkg/lakefs"
	"perago/pkg/projection"
	"perago/pkg/stage"
	"perago/pkg/telemetry"
	"perago/pkg/txn"
)

// visible is the lake of a stage by hand. Its branch is for people, so it is in
// listings; and the commit has none of the metadata by which Settling would know it.
type visible struct {
	stage.Lake
	lake lakefs.Settling
}

func newVisible(lake *lakefs.Client, uploads string) visible {
	settling := lakefs.Settling{Client: lake}
	if uploads == stage.PresignedNever {
		return visible{settling, settling}
	}
	return visible{lakefs.NewPresigned(settling, nil, func(bool, string) {}), settling}
}

func (v visible) CreateBranch(ctx context.Context, repository txn.Repository, name txn.Branch, source txn.CommitID) error {
	return v.lake.CreateVisibleBranch(ctx, repository, name, source)
}

func (v visible) CreateCommit(ctx context.Context, repository txn.Repository, branch txn.Branch, message string, metadata map[string]string) (txn.Commit, error) {
	return v.lake.Client.CreateCommit(ctx, repository, branch, message, metadata)
}

type stageOptions struct {
	hand       stage.Hand
	ref        string
	guardrails string
	branch     string
	metadata   []string
	root       bool
}

func (e *environment) stage() *cobra.Command {
	var options stageOptions
	command := &cobra.Command{
		Use:   "stage DIR lakefs://REPOSITORY/BRANCH[/PREFIX]",
		Short: "Put the files of a directory on a branch of their own, and say what is different",
		Long: `Does by hand what a perago_stage task does: compares the files of a directory by content
with the objects under a prefix, and makes one commit in which they are exactly those
files, on a branch of its own, cut from the head of BRANCH or from --ref. What is
elsewhere is left alone. The whole repository, without PREFIX, needs --root.

BRANCH is never written: there is no workflow, so nothing is published. The branch is
called ` + txn.HandBranches + ` and 32 digits unless --branch names one; no sweep takes it.
What to do with it is yours to decide, and is printed. When the stage fails, its branch
is deleted again; when nothing is different, none is made.

--dry-run compares, prints each path that is different, and writes nothing.

--guardrails FILE, or a list in its place, is what the files must be, as in a task's
input: else nothing is written.

On a terminal it shows how far it is. --timeout is for the questions before and behind
the stage, which takes as long as it takes.` + variables(transferConfig{}),
		Example: `  perago stage ./models lakefs://my-repo/main/models/ --dry-run
  perago stage ./models lakefs://my-repo/main/models/ --branch try-new-models -m "New models"
  perago stage ./models lakefs://my-repo/main/models/ --guardrails guardrails.json --output json`,
		Args: func(_ *cobra.Command, arguments []string) error {
			if len(arguments) != 2 {
				return fmt.Errorf("perago stage takes a directory and an address, such as ./models lakefs://my-repo/main/models/, but was given %d arguments", len(arguments))
			}
			return nil
		},
		RunE: func(command *cobra.Command, arguments []string) error {
			return e.runStage(command.Context(), arguments[0], arguments[1], options)
		},
	}
	flags := command.Flags()
	flags.BoolVar(&options.hand.DryRun, "dry-run", false, "say what is different, and write nothing")
	flags.StringVar(&options.ref, "ref", "", "compare with this `reference` and start from it: a branch, a tag or a commit (default the head of BRANCH)")
	flags.StringVar(&options.branch, "branch", "", "the `name` of the new branch")
	flags.BoolVar(&options.root, "root", false, "the whole repository is meant: the address names no PREFIX")
	flags.StringVar(&options.guardrails, "guardrails", "", "what the files must be: a JSON `file`, or the list itself")
	flags.BoolVar(&options.hand.AllowEmpty, "allow-empty", false, "an empty directory is meant: everything under PREFIX is removed")
	flags.StringVarP(&options.hand.Message, "message", "m", "", "the commit's `message`")
	flags.StringArrayVar(&options.metadata, "meta", nil, "a `key=value` for the commit's metadata; may be given several times")
	return command
}

// stageReport is the result for programs.
type stageReport struct {
	Repository txn.Repository `json:"repository"`
	// Branch is the one that was named, and not touched.
	Branch    txn.Branch   `json:"branch"`
	Ref       txn.CommitID `json:"ref"`
	Prefix    string       `json:"prefix"`
	Directory string       `json:"directory"`
	DryRun    bool         `json:"dry_run"`
	// StagingBranch is empty when none was made, and Commit then is Ref.
	StagingBranch txn.Branch   `json:"staging_branch"`
	Commit        txn.CommitID `json:"commit"`
	Added         int          `json:"added"`
	Changed       int          `json:"changed"`
	Removed       int          `json:"removed"`
	Unchanged     int          `json:"unchanged"`
	// Bytes is what was uploaded, or would be.
	Bytes      int64                  `json:"bytes"`
	Violations []projection.Violation `json:"violations"`
	// Changes are the paths, of a dry run.
	Changes []stageChange `json:"changes,omitempty"`
}

// stageChange is one path that is different. Bytes is the size of what would be
// uploaded.
type stageChange struct {
	Change string `json:"change"`
	Path   string `json:"path"`
	Bytes  int64  `json:"bytes"`
}

func (e *environment) runStage(ctx context.Context, directory, address string, options stageOptions) error {
	hand, at, err := options.parse(directory, address)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(directory)
	if err != nil {
		return err
	}
	defer root.Close()
	var settings transferConfig
	if err := e.configure(&settings); err != nil {
		return err
	}
	lake, err := lakefs.New(settings.LakeFS, nil)
	if err != nil {
		return err
	}
	if hand.Workspace, err = e.base(ctx, lake, at, options.ref); err != nil {
		return err
	}
	stager := &stage.Stager{
		Lake: newVisible(lake, settings.Transfer.Presigned), Root: root,
		UploadConcurrency: settings.Transfer.Concurrency, UploadRate: stage.NewUploadRate(settings.Transfer.RateLimit),
		NewExecutionID: config.NewExecutionID,
	}
	result, err := stager.ByHand(ctx, hand, e.bars())
	defer func() { result.Close() }() // a failure leaves a list on disk as well
	if err != nil {
		err = e.undo(ctx, lake, result.Staged, sentenceOf(err, directory))
	}
	var violated *projection.GuardrailError
	if err != nil && !errors.As(err, &violated) {
		return err
	}
	report, failed := newStageReport(hand, result)
	if failed != nil {
		return failed
	}
	if printed := e.printStage(report); printed != nil {
		return printed
	}
	return err
}

// parse reads what was given on the command line.
func (o stageOptions) parse(directory, address string) (stage.Hand, location, error) {
	at, err := parseLocation(address, "lakefs://REPOSITORY/BRANCH[/PREFIX], such as lakefs://my-repo/main/models/", o.root)
	if err != nil {
		return stage.Hand{}, location{}, err
	}
	hand := o.hand
	hand.Directory, hand.Prefix, hand.Branch = directory, at.prefix, txn.Branch(o.branch)
	switch {
	case o.branch != "" && o.branch == at.reference:
		return hand, at, fmt.Errorf("--branch is %s, which the files are meant for; a stage writes a new branch", o.branch)
	case strings.HasPrefix(o.branch, txn.BranchNamespace):
		return hand, at, fmt.Errorf("--branch is %s, and names that begin with %s are those of the workers; choose another", o.branch, txn.BranchNamespace)
	case strings.HasPrefix(o.branch, txn.HandBranches):
		return hand, at, fmt.Errorf("--branch is %s, and names that begin with %s are made up by perago stage; choose another, or give no --branch", o.branch, txn.HandBranches)
	case o.branch != "" && hand.DryRun:
		return hand, at, errors.New("--branch and --dry-run exclude each other: a dry run makes no branch")
	}
	for _, pair := range o.metadata {
		key, value, ok := strings.Cut(pair, "=")
		switch {
		case !ok || key == "":
			return hand, at, fmt.Errorf("--meta is %q; write key=value", pair)
		case strings.HasPrefix(key, "perago."):
			return hand, at, fmt.Errorf("--meta is %q, and keys that begin with perago. are perago's own; choose another", pair)
		}
		if hand.Metadata == nil {
			hand.Metadata = map[string]string{}
		}
		hand.Metadata[key] = value
	}
	hand.Guardrails, err = guardrails(o.guardrails)
	return hand, at, err
}

// base is the branch and the commit to start from.
func (e *environment) base(ctx context.Context, lake *lakefs.Client, at location, ref string) (txn.Workspace, error) {
	questions, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	workspace := txn.Workspace{Repository: at.repository, Branch: txn.Branch(at.reference)}
	head, err := lake.Head(questions, workspace.Repository, workspace.Branch)
	if errors.Is(err, txn.ErrNotFound) {
		err = missing(questions, lake, workspace.Repository, workspace.Branch)
	}
	if err == nil && ref != "" {
		head, err = e.resolve(ctx, lake, at.repository, ref)
	}
	return workspace.At(head), err
}

// sentenceOf says what a task says in the words of the command.
func sentenceOf(err error, directory string) error {
	var empty *stage.EmptyError
	var without *projection.UnrepresentableError
	switch {
	case errors.As(err, &empty):
		return fmt.Errorf("%s holds no files, which would remove everything under %s; if that is meant, give --allow-empty", directory, empty.Prefix)
	case errors.As(err, &without):
		return fmt.Errorf("%q in %s %s", without.Path, directory, without.Reason)
	}
	return err
}

// undo deletes the branch of a stage that failed: nobody else has been told of it.
func (e *environment) undo(ctx context.Context, lake *lakefs.Client, staged txn.Staged, err error) error {
	if staged.StagingBranch == "" {
		return err
	}
	// Also when it was interrupted.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.timeout)
	defer cancel()
	failed := lake.DeleteBranch(ctx, staged.Repository, staged.StagingBranch)
	if failed == nil || errors.Is(failed, txn.ErrNotFound) {
		return err
	}
	if errors.Is(failed, txn.ErrUnknownOutcome) {
		return fmt.Errorf("%w; it is not known whether the branch %s is deleted, look for it and delete it by hand: %w", err, staged.StagingBranch, failed)
	}
	return fmt.Errorf("%w; the branch %s is left behind, delete it by hand: %w", err, staged.StagingBranch, failed)
}

func newStageReport(hand stage.Hand, result stage.ByHand) (stageReport, error) {
	staged := result.Staged
	report := stageReport{
		Repository: staged.Repository, Branch: staged.Branch, Ref: staged.InputRef, Prefix: staged.Prefix.String(),
		Directory: hand.Directory, DryRun: hand.DryRun, StagingBranch: staged.StagingBranch, Commit: staged.Commit,
		Added: staged.Added, Changed: staged.Changed, Removed: staged.Removed, Unchanged: staged.Unchanged,
		Bytes: result.Plan.Bytes, Violations: append([]projection.Violation{}, result.Violations...),
	}
	if !hand.DryRun {
		return report, nil
	}
	for _, list := range []struct {
		change  string
		entries iter.Seq2[projection.Entry, error]
	}{{"added", result.Plan.AddedFiles()}, {"changed", result.Plan.ChangedFiles()}} {
		for entry, err := range list.entries {
			if err != nil {
				return report, err
			}
			report.Changes = append(report.Changes, stageChange{list.change, staged.Prefix.Key(entry.Path), entry.Size})
		}
	}
	for key, err := range result.Plan.RemovedKeys() {
		if err != nil {
			return report, err
		}
		report.Changes = append(report.Changes, stageChange{Change: "removed", Path: key})
	}
	return report, nil
}

func (e *environment) printStage(report stageReport) error {
	if e.out.format == formatJSON {
		return e.out.json(report)
	}
	if len(report.Violations) > 0 && !report.DryRun {
		return nil
	}
	heading, rows := []string{"BRANCH", "COMMIT", "ADDED", "CHANGED", "REMOVED", "UNCHANGED", "BYTES"}, [][]string(nil)
	if report.DryRun {
		heading = []string{"CHANGE", "PATH", "BYTES"}
		for _, c := range report.Changes {
			size := strconv.FormatInt(c.Bytes, 10)
			if c.Change == "removed" {
				size = "-"
			}
			rows = append(rows, []string{c.Change, printable(c.Path), size})
		}
	} else {
		branch := string(report.StagingBranch)
		if branch == "" {
			branch = "-"
		}
		rows = append(rows, []string{
			branch, string(report.Commit), strconv.Itoa(report.Added), strconv.Itoa(report.Changed),
			strconv.Itoa(report.Removed), strconv.Itoa(report.Unchanged), strconv.FormatInt(report.Bytes, 10),
		})
	}
	if len(rows) > 0 {
		if err := e.out.rows(heading, rows); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(e.stderr, report.advice())
	return err
}

// advice is what was found and what can be done now, for people.
func (r stageReport) advice() string {
	summary := fmt.Sprintf("%d added, %d changed, %d removed, %d unchanged", r.Added, r.Changed, r.Removed, r.Unchanged)
	target := fmt.Sprintf("lakefs://%s/%s", r.Repository, r.Branch)
	made := fmt.Sprintf("lakefs://%s/%s", r.Repository, r.StagingBranch)
	switch {
	case r.Added+r.Changed+r.Removed == 0:
		return fmt.Sprintf("%s is what %s holds under %s at %s; nothing was written.", r.Directory, target, r.Prefix, r.Ref.Short())
	case r.DryRun:
		return fmt.Sprintf("%s; %s to upload. Nothing was written.", summary, telemetry.Size(r.Bytes))
	}
	return fmt.Sprintf(`%s; %s uploaded. %s is not touched. To go on:
  lakectl diff %s %s
  lakectl merge %s %s   (moves the head: what running workflows would publish there is then refused)
  lakectl branch delete -y %s`,
		summary, telemetry.Size(r.Bytes), target, target, made, made, target, made)
}
