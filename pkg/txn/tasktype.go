package txn

import "strings"

// The task types as shipped. A TaskDef of another name with its own budget, such
// as perago_publish_large, is the same type by what its name begins with.
const (
	TypeCheckout TaskType = "perago_checkout"
	TypeStage    TaskType = "perago_stage"
	TypePublish  TaskType = "perago_publish"
	TypeCleanup  TaskType = "perago_cleanup"
)

// IsCheckout reports whether tasks of this type check out.
func (t TaskType) IsCheckout() bool { return strings.HasPrefix(string(t), string(TypeCheckout)) }

// IsStage reports whether tasks of this type stage.
func (t TaskType) IsStage() bool { return strings.HasPrefix(string(t), string(TypeStage)) }

// IsPublish reports whether tasks of this type publish.
func (t TaskType) IsPublish() bool { return strings.HasPrefix(string(t), string(TypePublish)) }

// IsCleanup reports whether tasks of this type clean up.
func (t TaskType) IsCleanup() bool { return strings.HasPrefix(string(t), string(TypeCleanup)) }
