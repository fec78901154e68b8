package fence_test

import (
	"context"
	"fmt"

	"perago/pkg/fence"
	"perago/pkg/lakefs"
	"perago/pkg/lakefs/lakefstest"
)

// Install puts the fence's action file on a branch, and Verify proves with two
// merges that the server runs it. This lakeFS is the one in memory, which the tests
// use.
func Example() {
	ctx := context.Background()
	server := lakefstest.NewServer()
	lake, err := lakefs.New(server.Config(), server.Transport())
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := lake.CreateRepository(ctx, "lake", "local://lake", "main"); err != nil {
		fmt.Println(err)
		return
	}

	target := fence.Target{Lake: lake, Repository: "lake", Branch: "main", Execution: "01890a5d-ac96-774b-bcce-b302099a8057"}
	_, err = target.Verify(ctx)
	fmt.Println("verified before:", err == nil)
	if _, err := target.Install(ctx, fence.Options{}); err != nil {
		fmt.Println(err)
		return
	}
	target.Execution = "01890a5d-ac97-774b-bcce-b302099a8057" // each command has its own
	verified, err := target.Verify(ctx)
	fmt.Println("verified after:", err == nil, "version", verified.Version)
	// Output:
	// verified before: false
	// verified after: true version 1
}
