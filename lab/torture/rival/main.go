// Rival is a worker process of the comparison with River: see package rival,
// which builds and starts it.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/fencepost-go/fencepost/lab/torture/internal/rival"
)

func main() {
	if err := rival.Work(context.Background(), os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "rival:", err)
		os.Exit(1)
	}
}
