package play

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWithoutNode(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "package-lock.json"), []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	_, err := onNode("graphile.mjs")(programs{node: &node{dir: dir}})
	if !errors.Is(err, errNode) || !strings.Contains(err.Error(), "npm") {
		t.Error(err)
	}
}
