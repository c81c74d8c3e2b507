//go:build unix

package pg

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakeServer makes a directory with programs that only tell a version.
func fakeServer(t *testing.T, bin, version string) {
	t.Helper()
	write(t, filepath.Join(bin, "initdb"), "", 0o755)
	write(t, filepath.Join(bin, "postgres"), fmt.Sprintf("#!/bin/sh\necho 'postgres (PostgreSQL) %s'\n", version), 0o755)
}

// onlyIn hides all servers of this machine, and looks for installed ones in
// dir/<any>/bin.
func onlyIn(t *testing.T, dir string) {
	t.Helper()
	before := installedIn
	t.Cleanup(func() { installedIn = before })
	installedIn = []string{filepath.Join(dir, "*", "bin")}
	t.Setenv("PATH", filepath.Join(dir, "path"))
	t.Setenv("FENCEPOST_PG_BIN", "")
}

func TestFindInstalled(t *testing.T) {
	dir := openDir(t)
	onlyIn(t, dir)
	for name, version := range map[string]string{"a": "9.6.1", "b": "15.18 (Debian 15.18-0)", "c": "16beta2", "d": "13.2"} {
		fakeServer(t, filepath.Join(dir, name, "bin"), version)
	}
	write(t, filepath.Join(dir, "client", "bin", "pg_config"), "", 0o755)
	for major, want := range map[int]string{0: "c", 15: "b", 16: "c", 13: "d"} {
		inst, err := find(t.Context(), Options{Major: major}, nil)
		if err != nil {
			t.Errorf("%d: %v", major, err)
		} else if inst.bin != filepath.Join(dir, want, "bin") {
			t.Errorf("%d: found %s", major, inst.bin)
		}
	}
}

func TestFindOnPath(t *testing.T) {
	dir := openDir(t)
	onlyIn(t, dir)
	fakeServer(t, filepath.Join(dir, "opt", "pg", "programs"), "17.1")
	path := filepath.Join(dir, "path")
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "opt", "pg", "programs", "postgres"), filepath.Join(path, "postgres")); err != nil {
		t.Fatal(err)
	}
	fakeServer(t, filepath.Join(dir, "configured"), "16.1")
	write(t, filepath.Join(path, "pg_config"), "#!/bin/sh\necho "+filepath.Join(dir, "configured")+"\n", 0o755)
	for _, major := range []int{16, 17} {
		inst, err := find(t.Context(), Options{Major: major}, nil)
		if err != nil || inst.major != major {
			t.Errorf("%d: found %+v, %v", major, inst, err)
		}
	}
}

// A named directory is preferred, and a wrong name is an error.
func TestFindNamed(t *testing.T) {
	dir := openDir(t)
	onlyIn(t, dir)
	fakeServer(t, filepath.Join(dir, "new", "bin"), "18.1")
	old := filepath.Join(dir, "old")
	fakeServer(t, old, "14.2")

	if inst, err := find(t.Context(), Options{Bin: old}, nil); err != nil || inst.major != 14 {
		t.Errorf("Bin: %+v, %v", inst, err)
	}
	if _, err := find(t.Context(), Options{Bin: old, Major: 18}, nil); err == nil {
		t.Error("Bin with another version was taken")
	}
	t.Setenv("FENCEPOST_PG_BIN", old)
	for major, want := range map[int]int{0: 14, 14: 14, 18: 18} {
		if inst, err := find(t.Context(), Options{Major: major}, nil); err != nil || inst.major != want {
			t.Errorf("FENCEPOST_PG_BIN, %d: %+v, %v", major, inst, err)
		}
	}
	t.Setenv("FENCEPOST_PG_BIN", dir)
	if _, err := find(t.Context(), Options{}, nil); err == nil || !strings.Contains(err.Error(), "FENCEPOST_PG_BIN") {
		t.Errorf("a directory without a server: %v", err)
	}
}

func TestNotFound(t *testing.T) {
	dir := openDir(t)
	onlyIn(t, dir)
	t.Setenv("XDG_CACHE_HOME", dir)
	t.Setenv("HOME", dir)
	fakeServer(t, filepath.Join(dir, "there", "bin"), "15.1")
	_, err := find(t.Context(), Options{Major: 18}, nil)
	if err == nil {
		t.Fatal("found a server")
	}
	for _, want := range []string{"version 18", "15.1", "npm", "DATABASE_URL", "FENCEPOST_PG_BIN", "apt-get install"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
}

// What root can reach and the server's user cannot is copied.
func TestReachable(t *testing.T) {
	dir, home := openDir(t), openDir(t)
	prefix := filepath.Join(dir, "prefix")
	fakeServer(t, filepath.Join(prefix, "bin"), "18.1")
	write(t, filepath.Join(prefix, "lib", "a.so.1"), "code", 0o644)
	if err := os.Symlink("a.so.1", filepath.Join(prefix, "lib", "a.so")); err != nil {
		t.Fatal(err)
	}
	inst, err := probe(t.Context(), filepath.Join(prefix, "bin"))
	if err != nil {
		t.Fatal(err)
	}
	// Of the right owner, as far as only root may give files away.
	reader := &owner{uid: 12345, gid: 12345}
	if same, err := inst.reachable(reader, home); err != nil || same != inst {
		t.Errorf("an open one: %+v, %v", same, err)
	}
	if os.Geteuid() != 0 {
		return
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	copied, err := inst.reachable(reader, home)
	if err != nil {
		t.Fatal(err)
	}
	if copied.bin != filepath.Join(home, "postgresql", "bin") || !reader.canReach(copied.bin) {
		t.Errorf("a closed one: %+v", copied)
	}
	if again, err := probe(t.Context(), copied.bin); err != nil || again.version != inst.version {
		t.Errorf("the copy: %+v, %v", again, err)
	}
	if lib, err := os.ReadFile(filepath.Join(home, "postgresql", "lib", "a.so")); err != nil || string(lib) != "code" {
		t.Errorf("the library: %q, %v", lib, err)
	}
}
