package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
)

func TestDemoWithoutItsServer(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"demo"}, {"demo", "--naive"}} {
		var stdout, stderr bytes.Buffer
		code := Run(t.Context(), append(args, "--database-url", "postgres://x:hunter2@127.0.0.1:1/none"), nil, strings.NewReader(""), &stdout, &stderr)
		if code != exitConnect {
			t.Errorf("%q: exit code %d; want %d", args, code, exitConnect)
		}
		if stdout.Len() > 0 || strings.Contains(stderr.String(), "hunter2") || strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("%q: prints %q and %q; want one line about the connection", args, stdout.String(), stderr.String())
		}
	}
}

func TestDemoRefusesArguments(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"demo", "all"}, {"demo", "--database-url", "postgres://a:b@c:notaport/d"}} {
		if code := Run(context.Background(), args, nil, strings.NewReader(""), io.Discard, io.Discard); code != exitUsage {
			t.Errorf("%q: exit code %d; want %d", args, code, exitUsage)
		}
	}
}

func TestBrokenPromisesAreAnError(t *testing.T) {
	t.Parallel()
	if err := broken("promise", nil); err != nil {
		t.Errorf("no line: %v", err)
	}
	err := broken("promise", []string{"one", "two"})
	if err == nil || err.Error() != "promise: one\npromise: two" {
		t.Errorf("two lines: %v", err)
	}
	if code := exitCode(err); code != exitFailed {
		t.Errorf("exit code %d; want %d", code, exitFailed)
	}
}

// A file or a pipe gets the story, and no bar.
func TestNarratorWithoutTerminal(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	n := narrator{out: &out}
	n.line("one")
	n.progress("worked", 1, 2)
	n.line("two\x1b[31m")
	n.end()
	if out.String() != "one\ntwo\\x1b[31m\n" {
		t.Errorf("%q", out.String())
	}
}
