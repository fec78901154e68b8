// Command prefetch puts the servers into the cache, so that nothing is built
// or fetched in the middle of a test or of the demo. With -java it only says which
// Java it would use, and exits with 1 where there is none that is new enough.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"perago/e2e/stack"
)

func main() {
	onlyJava := flag.Bool("java", false, "only say which Java is there")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *onlyJava)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "prefetch:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, onlyJava bool) error {
	if onlyJava {
		java, err := stack.FindJava(ctx)
		if err == nil {
			fmt.Println(java)
		}
		return err
	}
	binaries, err := stack.Prefetch(ctx, os.Stderr)
	if err == nil {
		fmt.Fprintf(os.Stderr, "Conductor %s runs on %s\n", binaries.ConductorVersion, binaries.Java)
	}
	return err
}
