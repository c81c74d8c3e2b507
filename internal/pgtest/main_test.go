package pgtest

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestMain(m *testing.M) { os.Exit(Run(m)) }

// leakVariable makes TestLeak leak.
const leakVariable = "FENCEPOST_PGTEST_LEAK"

func TestLeak(*testing.T) {
	if os.Getenv(leakVariable) != "" {
		go func() { select {} }()
	}
}

func TestRunFindsLeaks(t *testing.T) {
	for leak, want := range map[string]bool{"": true, "yes": false} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLeak$")
		cmd.Env = append(os.Environ(), leakVariable+"="+leak)
		out, err := cmd.CombinedOutput()
		if (err == nil) != want {
			t.Errorf("leak %q: %v\n%s", leak, err, out)
		}
		if !want && !strings.Contains(string(out), "TestLeak") {
			t.Errorf("the leak is not named:\n%s", out)
		}
	}
}

// Without DATABASE_URL a server is started for the tests and does not stay.
func TestRunStartsAServer(t *testing.T) {
	tmp, err := os.MkdirTemp("/tmp", "pg")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	if err := os.Chmod(tmp, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDatabasesAreApart$")
	cmd.Env = append(os.Environ(), "DATABASE_URL=", "TMPDIR="+tmp)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	used := false
	bases, err := os.ReadDir(tmp)
	if err != nil {
		t.Fatal(err)
	}
	for _, base := range bases {
		used = used || strings.HasPrefix(base.Name(), "fencepost-")
		homes, err := os.ReadDir(tmp + "/" + base.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, home := range homes {
			if home.IsDir() {
				t.Errorf("%s/%s is left", base.Name(), home.Name())
			}
		}
	}
	if !used {
		t.Error("no server was started")
	}
}
