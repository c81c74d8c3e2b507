//go:build unix

package pg

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The first data directory comes from initdb, the second from the template,
// also after a kill in the making of a template. Both have all that the first
// one had.
func TestDataTemplate(t *testing.T) {
	cache := openDir(t)
	t.Setenv("XDG_CACHE_HOME", cache)
	var log strings.Builder
	var seen []string
	for range 2 {
		s, err := Start(t.Context(), Options{Major: testMajor(), TCP: true, Log: &log})
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, mustAsk(t, s.TCPURL("template1"), "SELECT count(*)::text FROM pg_class"))
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(log.String(), "initialising"); n != 1 || seen[0] != seen[1] {
		t.Errorf("initialised %d times, tables %v", n, seen)
	}

	templates, err := filepath.Glob(filepath.Join(cache, "fencepost", "data-*", "password"))
	if err != nil || len(templates) != 1 {
		t.Fatalf("templates: %v, %v", templates, err)
	}
	template := filepath.Dir(templates[0])
	if err := os.Rename(template, template+".new"); err != nil { // one step before the end
		t.Fatal(err)
	}
	s := startTest(t, Options{TCP: true})
	mustAsk(t, s.TCPURL("postgres"), "SELECT current_user")
	if !exists(templates[0]) {
		t.Error("no new template was made")
	}
}
