package run

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/fencepost-go/fencepost/lab/torture/internal/stage"
)

// crew is the program of those who take part. It may do without guards, and is
// watched: hence the tag.
var crew = []string{"-tags", "torture", "github.com/fencepost-go/fencepost/lab/torture/crew"}

// BuildCrew builds the program of those who take part, and returns its path.
func BuildCrew(ctx context.Context, dir string) (string, error) {
	path := filepath.Join(dir, "crew")
	build := exec.CommandContext(ctx, "go", append([]string{"build", "-o", path}, crew...)...)
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the crew (is this the folder lab?): %w\n%s", err, out)
	}
	return path, nil
}

// BuildWrong builds the same with a clock that can be wrong.
func BuildWrong(ctx context.Context, dir string) (string, error) {
	path := filepath.Join(dir, "crew-wrong")
	return path, stage.WrongClock(ctx, "", path, crew...)
}
