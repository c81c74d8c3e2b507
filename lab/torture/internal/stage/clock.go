package stage

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// ClockVariable is by how much the clock of a program that WrongClock has built
// is wrong: a whole number of seconds, negative if it is behind.
const ClockVariable = "TORTURE_CLOCK"

// The standard library's func, and the same with the offset. The reading of the
// monotonic clock, by which durations are measured, stays as it is.
const (
	nowBefore = "func Now() Time {\n\tsec, nsec, mono := "
	nowAfter  = `var wrong = func() (seconds int64) {
	text, _ := syscall.Getenv("` + ClockVariable + `")
	behind := len(text) > 0 && text[0] == '-'
	for _, digit := range []byte(text) {
		if '0' <= digit && digit <= '9' {
			seconds = seconds*10 + int64(digit-'0')
		}
	}
	if behind {
		return -seconds
	}
	return seconds
}()

func Now() Time {
	sec, nsec, mono := `
)

// WrongClock builds a program, with go build's flags and package as given, that
// has another idea of what time it is. It works on a copy of the standard
// library's file; nothing is changed there.
func WrongClock(ctx context.Context, dir, output string, build ...string) error {
	fail := func(err error) error { return fmt.Errorf("build with a wrong clock: %w", err) }
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return fail(err)
	}
	original := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	text, err := os.ReadFile(original)
	if err != nil {
		return fail(err)
	}
	changed := strings.Replace(string(text), nowBefore, nowAfter, 1)
	changed = strings.Replace(changed, "sec, nsec, mono := runtimeNow()\n", "sec, nsec, mono := runtimeNow()\n\tsec += wrong\n", 1)
	changed = strings.Replace(changed, "sec, nsec, mono := now()\n", "sec, nsec, mono := now()\n\tsec += wrong\n", 1)
	changed = strings.Replace(changed, "import (\n", "import (\n\t\"syscall\"\n", 1)
	if strings.Count(changed, "sec += wrong\n") != 1 || strings.Count(changed, "var wrong =") != 1 {
		return fail(fmt.Errorf("%s is not as expected", original))
	}
	tmp, err := os.MkdirTemp("", "torture-clock-")
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(tmp)
	copied, overlay := filepath.Join(tmp, "time.go"), filepath.Join(tmp, "overlay.json")
	if err := os.WriteFile(copied, []byte(changed), 0o644); err != nil {
		return fail(err)
	}
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{original: copied}})
	if err != nil {
		return fail(err)
	}
	if err := os.WriteFile(overlay, list, 0o644); err != nil {
		return fail(err)
	}
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-overlay", overlay, "-o", output}, build...)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fail(fmt.Errorf("%w\n%s", err, out))
	}
	return nil
}
