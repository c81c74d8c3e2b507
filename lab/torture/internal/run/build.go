package run

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
)

// BuildCrew builds the program of the processes that take part, which may do
// without guards and is watched, and returns its path.
func BuildCrew(ctx context.Context, dir string) (string, error) {
	path := filepath.Join(dir, "crew")
	build := exec.CommandContext(ctx, "go", "build", "-tags", "torture", "-o", path, "github.com/fencepost-go/fencepost/lab/torture/crew")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the crew (run this in the folder lab): %w\n%s", err, out)
	}
	return path, nil
}
