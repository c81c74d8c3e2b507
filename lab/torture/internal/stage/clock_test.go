package stage_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost/lab/torture/internal/stage"
)

const clockProgram = `package main

import (
	"fmt"
	"time"
)

func main() {
	begin := time.Now()
	time.Sleep(50 * time.Millisecond)
	fmt.Println(begin.Unix(), time.Since(begin).Milliseconds(), time.Until(begin.Add(time.Second)) > 0, time.Now().Sub(begin) < time.Minute)
}
`

// The clock is wrong by what the environment says, and durations are right.
func TestWrongClock(t *testing.T) {
	dir := t.TempDir()
	source, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "main")
	if err := os.WriteFile(source, []byte(clockProgram), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := stage.WrongClock(t.Context(), dir, program, source); err != nil {
		t.Fatal(err)
	}
	for _, off := range []int64{0, 5 * 3600, -7 * 3600} {
		cmd := exec.CommandContext(t.Context(), program)
		if off != 0 {
			cmd.Env = []string{fmt.Sprintf("%s=%d", stage.ClockVariable, off)}
		}
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		var seconds, took int64
		var until, since bool
		if _, err := fmt.Sscan(string(out), &seconds, &took, &until, &since); err != nil {
			t.Fatal(err)
		}
		if wrong := seconds - time.Now().Unix() - off; wrong < -60 || wrong > 60 {
			t.Errorf("wrong by %d s: it was %d s more", off, wrong)
		}
		if took < 50 || took > 10000 || !until || !since {
			t.Errorf("wrong by %d s: durations are wrong too: %s", off, out)
		}
	}
}
