package main

import (
	"net"
	"testing"
	"time"
)

// A server that accepts and says nothing must not keep a shell waiting.
func TestCompletionWaitsASecond(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	began := time.Now()
	got := run(t, invocation{args: []string{"__complete", "list", "--queue", ""}}, "DATABASE_URL=postgres://me:"+password+"@"+silent.Addr().String()+"/db")
	if took := time.Since(began); took < completionPatience || took >= dialTimeout {
		t.Errorf("took %v", took)
	}
	if got.code != exitOK || got.stdout != ":4\n" {
		t.Errorf("exit code %d, %q, %q", got.code, got.stdout, got.stderr)
	}
}

func TestHarmless(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"mail": true, "mail-2.eu/x_y:z": true, "größe": true, "@team+1=a": true,
		"a b": false, "$(x)": false, "a;b": false, "`x`": false, "a\nb": false, "a\tb": false, "\x1b[31m": false, "--all": false, "a'b": false, `a"b`: false, "a*": false, "~": false,
	} {
		if got := harmless(name); got != want {
			t.Errorf("harmless(%q) = %v", name, got)
		}
	}
}
