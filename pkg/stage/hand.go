package stage

import (
	"context"
	"fmt"
	"maps"

	"perago/pkg/projection"
	"perago/pkg/txn"
)

// Hand is a stage by hand: outside of any workflow, and so with nobody who would
// publish it. The files are those of the stager's whole root.
type Hand struct {
	// Workspace is the branch that the files are meant for, which is not touched, and
	// the commit that they are compared with and staged on.
	Workspace txn.Workspace
	Prefix    txn.Prefix
	// Directory is what people call the root.
	Directory  string
	Guardrails []txn.Guardrail
	AllowEmpty bool
	// DryRun compares, and writes nothing.
	DryRun bool
	// Branch is the staging branch, which must not be there; "" takes a name that is
	// nobody's.
	Branch txn.Branch
	// Message is the commit's; "" is one that says what it is.
	Message string
	// Metadata is added to that of the commit.
	Metadata map[string]string
}

// ByHand is what became of a stage by hand.
type ByHand struct {
	// Staged has the branch that was made also where the rest failed: it is the
	// caller's to remove. Nothing in it names a workflow.
	Staged txn.Staged
	// Plan is what there was to do. It can be read until Close.
	Plan       projection.Plan
	Violations []projection.Violation

	compared comparison
}

// Close gives the temporary files back that the plan is read from.
func (h ByHand) Close() { h.compared.close() }

// ByHand stages the files of the root on a branch of their own, by the same steps
// as a task does. The result is the caller's to close, also with an error.
func (s *Stager) ByHand(ctx context.Context, hand Hand, attempt Attempt) (ByHand, error) {
	e := s.begin(attempt)
	end := attempt.Phase("validate")
	err := e.prepareHand(ctx, hand)
	end()
	if err != nil {
		return ByHand{}, err
	}
	e.files = projection.NewReader(e.Root, e.directory)
	defer e.files.Close()
	compared, violations, err := e.compare(ctx)
	result := ByHand{Plan: compared.plan, Violations: violations, compared: compared}
	switch {
	case err != nil:
		return result, err
	case len(violations) > 0:
		result.Staged = e.staged
		return result, &projection.GuardrailError{Violations: violations}
	case hand.DryRun:
		e.staged.NoOp = compared.plan.Empty()
	default:
		err = e.apply(ctx, compared)
	}
	result.Staged = e.staged
	return result, err
}

func (e *execution) prepareHand(ctx context.Context, hand Hand) (err error) {
	e.labels, e.directory, e.comparesAll = hand, ".", true
	e.input = txn.StageInput{
		Workspace: hand.Workspace, Prefix: hand.Prefix, Directory: hand.Directory,
		Guardrails: hand.Guardrails, AllowEmpty: hand.AllowEmpty,
	}
	if e.guardrails, err = projection.NewGuardrails(hand.Guardrails); err != nil {
		return err
	}
	e.staged = txn.Staged{
		Repository: hand.Workspace.Repository, Branch: hand.Workspace.Branch, Prefix: hand.Prefix,
		Commit: hand.Workspace.Ref, InputRef: hand.Workspace.Ref,
	}
	if e.staged.Execution, err = e.NewExecutionID(); err != nil {
		return err
	}
	return e.readBase(ctx)
}

func (h Hand) branch(e *execution) txn.Branch {
	if h.Branch != "" {
		return h.Branch
	}
	return txn.HandBranch(e.staged.Execution)
}

func (h Hand) message(e *execution) string {
	if h.Message != "" {
		return h.Message
	}
	return fmt.Sprintf("Stage %s for %s by hand", e.input.Prefix, e.staged.Branch)
}

func (h Hand) missing(_ *execution, err error) error { return err }

// metadata says where the commit comes from. It is no record of the protocol's: to a
// publication it is anybody's commit.
func (h Hand) metadata(e *execution) map[string]string {
	metadata := map[string]string{
		"perago.by_hand":       "stage",
		"perago.execution_id":  string(e.staged.Execution),
		"perago.input_ref":     string(e.staged.InputRef),
		"perago.target_branch": string(e.staged.Branch),
		"perago.prefix":        e.staged.Prefix.String(),
	}
	maps.Copy(metadata, h.Metadata)
	return metadata
}
