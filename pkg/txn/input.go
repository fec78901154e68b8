package txn

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"
)

// Workspace is a target branch and the immutable input commit a step starts
// from.
type Workspace struct {
	Repository Repository `json:"repository"`
	Branch     Branch     `json:"branch"`
	// RefType is always "commit": a name that moves is no input.
	RefType string   `json:"ref_type"`
	Ref     CommitID `json:"ref"`
}

// RefTypeCommit is the only reference type of a workspace.
const RefTypeCommit = "commit"

// At is the same workspace at another commit.
func (w Workspace) At(ref CommitID) Workspace {
	w.RefType, w.Ref = RefTypeCommit, ref
	return w
}

// InputError is what the error of reading the input ref means for a task: one that
// is not there, or not any more, will never be.
func (w Workspace) InputError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrGone):
		return errors.Join(Terminalf("workspace.ref", "%s holds no commit %s; start a new workflow from a commit that `perago ref` prints", w.Repository, w.Ref), err)
	}
	return fmt.Errorf("read the input ref: %w", err)
}

func parseWorkspace(path string, raw json.RawMessage, allowed AllowList) (Workspace, error) {
	d, err := parseDocument(path, raw, []string{"repository", "branch", "ref_type", "ref"})
	if err != nil {
		return Workspace{}, err
	}
	repository, err := d.text("repository")
	if err != nil {
		return Workspace{}, err
	}
	branch, err := d.text("branch")
	if err != nil {
		return Workspace{}, err
	}
	refType, err := d.text("ref_type")
	if err != nil {
		return Workspace{}, err
	}
	if refType != RefTypeCommit {
		return Workspace{}, Terminalf(join(path, "ref_type"), "is %s; only \"commit\" is an input that cannot move", quote(refType))
	}
	for _, name := range []string{"repository", "branch"} {
		if err := d.checkName(name); err != nil {
			return Workspace{}, err
		}
	}
	if err := checkRepository(join(path, "repository"), Repository(repository)); err != nil {
		return Workspace{}, err
	}
	if err := checkTarget(join(path, "branch"), Branch(branch)); err != nil {
		return Workspace{}, err
	}
	text, err := d.text("ref")
	if err != nil {
		return Workspace{}, err
	}
	ref, err := ParseCommitID(text)
	if err != nil {
		return Workspace{}, Terminalf(join(path, "ref"), "%v; `perago ref lakefs://%s/%s` prints one", err, repository, branch)
	}
	if !allowed.Allows(Repository(repository), Branch(branch)) {
		return Workspace{}, Terminalf(path, "%s/%s is not in PERAGO_ALLOWED_REPOSITORIES of this worker", repository, branch)
	}
	return Workspace{Repository: Repository(repository), Branch: Branch(branch), RefType: refType, Ref: ref}, nil
}

// repositoryName is lakeFS's own rule.
var repositoryName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{2,62}$`)

func checkRepository(field string, repository Repository) error {
	if !repositoryName.MatchString(string(repository)) {
		return Terminalf(field, "%s is not the name of a lakeFS repository", quote(string(repository)))
	}
	return nil
}

// branchName is lakeFS's own rule.
var branchName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_-]*$`)

func checkTarget(field string, branch Branch) error {
	switch {
	case !branchName.MatchString(string(branch)):
		return Terminalf(field, "%s is not the name of a lakeFS branch", quote(string(branch)))
	case strings.HasPrefix(string(branch), BranchNamespace):
		return Terminalf(field, "%s is in the %s namespace, whose branches are deleted by cleanup; choose another target", quote(string(branch)), BranchNamespace)
	}
	return nil
}

// StageInput is the checked input of perago_stage.
type StageInput struct {
	Workspace Workspace
	Prefix    Prefix
	// Directory is the absolute path of the projection's source, Import the
	// object-store prefix that is taken as it is. One of them is set, or none when
	// the step is read-only.
	Directory string
	Import    ImportSource
	// ReadOnly steps have no source, and nothing is scanned.
	ReadOnly   bool
	AllowEmpty bool
	// Guardrails are what the projection must hold before anything is staged.
	Guardrails []Guardrail
}

// InputOf is the input of a polled task. Input that Conductor keeps in its external
// payload storage is terminal: the task itself holds an empty object, of which every
// field would be missing.
func InputOf(task Task) (json.RawMessage, error) {
	if task.ExternalInput {
		return nil, Terminalf("", "Conductor keeps the input of this task in its external payload storage, which Perago's tasks do not support; pass less to the task, or raise conductor.app.taskInputPayloadSizeThreshold on the server")
	}
	return task.Input, nil
}

// ParseStageInput reads and checks the whole input of a perago_stage task.
// Unknown fields are refused.
func ParseStageInput(raw json.RawMessage, allowed AllowList) (StageInput, error) {
	d, err := parseDocument("", raw, []string{"workspace", "prefix", "root", "source", "guardrails", "read_only", "allow_empty"})
	if err != nil {
		return StageInput{}, err
	}
	var input StageInput
	if input.Workspace, err = parseWorkspace("workspace", d.fields["workspace"], allowed); err != nil {
		return StageInput{}, err
	}
	if input.Prefix, err = d.prefix(); err != nil {
		return StageInput{}, err
	}
	if input.ReadOnly, err = d.flag("read_only"); err != nil {
		return StageInput{}, err
	}
	if input.AllowEmpty, err = d.flag("allow_empty"); err != nil {
		return StageInput{}, err
	}
	if input.Guardrails, err = parseGuardrails(d); err != nil {
		return StageInput{}, err
	}
	if input.ReadOnly {
		if len(input.Guardrails) > 0 {
			return StageInput{}, Terminalf("guardrails", "go not with read_only: a read-only step looks at no files; remove one of the two")
		}
		if d.has("source") {
			return StageInput{}, Terminalf("source", "goes not with read_only: a read-only step publishes nothing; remove one of the two")
		}
		return input, nil
	}
	if input.Directory, input.Import, err = parseSource(d.fields["source"]); err != nil {
		return StageInput{}, err
	}
	if input.Import != "" && input.Prefix == "" {
		return StageInput{}, Terminalf("prefix", "is the root, which an import cannot replace: it would take the repository's hooks with it; choose a prefix")
	}
	return input, nil
}

// SourceDirectory checks where a source directory lies, by its text alone: it is
// strictly below <root>/<workflow id>/, written without dot segments. The result
// is relative to root. Links are the scan's to refuse.
func SourceDirectory(root string, workflow WorkflowID, directory string) (string, error) {
	const field = "source.directory"
	if id := string(workflow); id == "" || id == "." || id == ".." || strings.ContainsAny(id, "/\x00") || ReservedDirectory(id) {
		return "", Terminalf("", "the workflow's id %s makes no name of a directory", quote(id))
	}
	own := path.Join(root, string(workflow))
	if !path.IsAbs(directory) {
		return "", Terminalf(field, "%s is not an absolute path; it must lie below %s/", quote(directory), own)
	}
	if strings.ContainsRune(directory, 0) || path.Clean(directory) != strings.TrimSuffix(directory, "/") {
		return "", Terminalf(field, "%s has empty, . or .. segments; write the plain path below %s/, and give each expression in it a value", quote(directory), own)
	}
	relative, ok := strings.CutPrefix(path.Clean(directory), own+"/")
	if !ok || relative == "" {
		return "", Terminalf(field, "%s is not below %s/; a step takes files only from its own workflow's directory under PERAGO_WORKSPACE_ROOT", quote(directory), own)
	}
	// The root and the workflow's id are nobody's input.
	if err := checkFilled(field, directory, relative); err != nil {
		return "", err
	}
	return string(workflow) + "/" + relative, nil
}

// prefix reads the prefix of an input, and root beside it.
func (d document) prefix() (Prefix, error) {
	text, err := d.anyText("prefix")
	if err != nil {
		return "", err
	}
	root, err := d.flag("root")
	if err != nil {
		return "", err
	}
	return ParseInputPrefix(text, root)
}

// CheckoutInput is the checked input of perago_checkout.
type CheckoutInput struct {
	Workspace Workspace
	Prefix    Prefix
	// Guardrails are what the projection at the input ref must hold.
	Guardrails []Guardrail
}

// ParseCheckoutInput reads and checks the whole input of a perago_checkout task.
// Unknown fields are refused.
func ParseCheckoutInput(raw json.RawMessage, allowed AllowList) (CheckoutInput, error) {
	d, err := parseDocument("", raw, []string{"workspace", "prefix", "root", "as_of", "guardrails"})
	if err != nil {
		return CheckoutInput{}, err
	}
	var input CheckoutInput
	if input.Workspace, err = parseWorkspace("workspace", d.fields["workspace"], allowed); err != nil {
		return CheckoutInput{}, err
	}
	if input.Prefix, err = d.prefix(); err != nil {
		return CheckoutInput{}, err
	}
	// as_of tells perago lint that an older commit is meant. It changes nothing here.
	if _, err := d.flag("as_of"); err != nil {
		return CheckoutInput{}, err
	}
	if input.Guardrails, err = parseGuardrails(d); err != nil {
		return CheckoutInput{}, err
	}
	if err := CheckCheckoutGuardrails(input.Guardrails); err != nil {
		return CheckoutInput{}, err
	}
	return input, nil
}

// PublishInput is the checked input of perago_publish.
type PublishInput struct {
	Workspace Workspace
	Staged    Staged
}

// ParsePublishInput reads and checks the whole input of a perago_publish task.
// The budget comes with the TaskDef's template: equal to it, it is ignored;
// another one is terminal, because it would have replaced the template whole.
func ParsePublishInput(raw json.RawMessage, definition TaskDefinition, allowed AllowList) (PublishInput, error) {
	d, err := parseDocument("", raw, []string{"workspace", "staged", "budget"})
	if err != nil {
		return PublishInput{}, err
	}
	var input PublishInput
	if input.Workspace, err = parseWorkspace("workspace", d.fields["workspace"], allowed); err != nil {
		return PublishInput{}, err
	}
	if input.Staged, err = parseStaged("staged", d.fields["staged"]); err != nil {
		return PublishInput{}, err
	}
	if err := input.Staged.sameWorkspace(input.Workspace); err != nil {
		return PublishInput{}, err
	}
	if _, ok := d.fields["budget"]; ok {
		want, err := BudgetOf(definition)
		if err != nil {
			return PublishInput{}, Terminalf("budget", "%v", err)
		}
		if got, err := parseBudget(d.fields["budget"]); err != nil || got != want {
			return PublishInput{}, Terminalf("budget", "differs from the TaskDef's; the budget belongs in the TaskDef, remove it from the task's input")
		}
	}
	return input, nil
}

// CleanupInput is the checked input of perago_cleanup: one of the two wirings.
type CleanupInput struct {
	// Staged is set for cleanup after a step.
	Staged *Staged
	// Workflow is set for cleanup of a whole workflow.
	Workflow WorkflowID
}

// ParseCleanupInput reads and checks the whole input of a perago_cleanup task.
// A step whose stage gave no output (null) has nothing to clean: both fields of
// the result are empty.
func ParseCleanupInput(raw json.RawMessage, allowed AllowList) (CleanupInput, error) {
	d, err := parseDocument("", raw, []string{"workspace", "staged", "workflow_id"})
	if err != nil {
		return CleanupInput{}, err
	}
	if d.has("workflow_id") {
		if d.has("staged") {
			return CleanupInput{}, Terminalf("workflow_id", "goes not with staged: one cleans a workflow, the other a step; remove one of the two")
		}
		workflow, err := d.text("workflow_id")
		return CleanupInput{Workflow: WorkflowID(workflow)}, err
	}
	if _, ok := d.fields["workflow_id"]; ok && !d.has("staged") {
		return CleanupInput{}, missing("workflow_id")
	}
	if _, ok := d.fields["staged"]; !ok {
		return CleanupInput{}, Terminalf("staged", "is missing; give staged and workspace of a stage's output, or workflow_id")
	}
	if !d.has("staged") {
		return CleanupInput{}, nil
	}
	staged, err := parseStaged("staged", d.fields["staged"])
	if err != nil {
		return CleanupInput{}, err
	}
	workspace, err := parseWorkspace("workspace", d.fields["workspace"], allowed)
	if err != nil {
		return CleanupInput{}, err
	}
	if err := staged.sameWorkspace(workspace); err != nil {
		return CleanupInput{}, err
	}
	return CleanupInput{Staged: &staged}, nil
}
