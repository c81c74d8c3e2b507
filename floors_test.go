package fencepost_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/fencepost-go/fencepost"

func goList(t *testing.T, args ...string) []string {
	t.Helper()
	out, err := exec.Command("go", append([]string{"list"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("go list %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	lines := strings.Fields(string(out))
	slices.Sort(lines)
	return slices.Compact(lines)
}

// Whoever embeds the package links these modules and no others.
func TestEmbeddersLinkFewModules(t *testing.T) {
	t.Parallel()
	want := []string{
		"github.com/cenkalti/backoff/v4",
		module,
		"github.com/jackc/pgpassfile",
		"github.com/jackc/pgservicefile",
		"github.com/jackc/pgx/v5",
		"github.com/jackc/pgxlisten",
		"github.com/jackc/puddle/v2",
		"golang.org/x/sync",
		"golang.org/x/text",
	}
	got := goList(t, "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", ".")
	if !slices.Equal(got, want) {
		t.Errorf("linked modules are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Imports point down only, and the rooms of one floor do not know each other.
func TestImportsPointDown(t *testing.T) {
	t.Parallel()
	floors := map[string]int{"": 3, "dispatcher": 2, "notify": 1, "poller": 1, "claim": 1, "migrations": 1, "cmd": 4, "internal": 0}
	floorOf := func(pkg string) (room string, floor int) {
		room, _, _ = strings.Cut(strings.TrimPrefix(strings.TrimPrefix(pkg, module), "/"), "/")
		floor, known := floors[room]
		if !known {
			t.Fatalf("package %s is on no floor", pkg)
		}
		return room, floor
	}
	for _, pkg := range goList(t, "./...") {
		room, floor := floorOf(pkg)
		for _, dep := range goList(t, "-f", "{{range .Imports}}{{println .}}{{end}}", pkg) {
			if strings.HasPrefix(dep, module) {
				if other, below := floorOf(dep); other != room && below >= floor {
					t.Errorf("%s imports %s, which is not below it", pkg, dep)
				}
			}
			if driver := strings.HasPrefix(dep, "github.com/jackc/"); driver && (room == "poller" || room == "dispatcher") {
				t.Errorf("%s imports %s: this room knows no driver", pkg, dep)
			}
		}
	}
}

// A program that is not built for it cannot do without any guard, nor be
// watched.
func TestReleasedProgramsHaveEveryGuard(t *testing.T) {
	t.Parallel()
	const rig = module + "/internal/torture"
	if slices.Contains(goList(t, "-deps", "./cmd/fencepost"), rig) {
		t.Errorf("the command has %s in it", rig)
	}
	if !slices.Contains(goList(t, "-tags=torture", "-deps", "./cmd/fencepost"), rig) {
		t.Errorf("this test does not see %s where it is", rig)
	}
}
