package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost/internal/pg"
	"github.com/fencepost-go/fencepost/internal/pgtest"
	"github.com/fencepost-go/fencepost/migrations"
)

const password = "s3cret"

// A command with what makes it print something where it works.
type invocation struct {
	args  []string
	stdin string
}

// onDatabase are all commands that need a database.
var onDatabase = []invocation{
	{args: []string{"migrate", "up"}},
	{args: []string{"migrate", "down", "--to", strconv.Itoa(migrations.Latest)}},
	{args: []string{"migrate", "status"}},
	{args: []string{"enqueue", "mail"}},
	{args: []string{"enqueue"}, stdin: `{"kind": "mail"}`},
	{args: []string{"list"}},
	{args: []string{"show", "1"}},
	{args: []string{"work", "--exec", "true"}},
	{args: []string{"retry", "9007199254740993"}},
	{args: []string{"retry", "--all"}},
	{args: []string{"cancel", "--all"}},
	{args: []string{"cancel", "--all", "--dry-run"}},
	{args: []string{"release", "--queue", "mail"}},
	{args: []string{"queue", "pause", "mail"}},
	{args: []string{"queue", "list"}},
	{args: []string{"queue", "show", "mail"}},
	{args: []string{"queue", "resume", "mail"}},
	{args: []string{"worker", "list"}},
	{args: []string{"delete", "--all"}},
	{args: []string{"migrate", "grants", "--worker", "postgres", "--apply"}},
	{args: []string{"doctor"}},
	{args: []string{"bench", "--seconds", "3"}},
	{args: []string{"bench", "--clean"}},
}

// result is what Run did.
type result struct {
	code           int
	stdout, stderr string
}

func run(t *testing.T, c invocation, env ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var stdout, stderr bytes.Buffer
	code := Run(ctx, c.args, env, strings.NewReader(c.stdin), &stdout, &stderr)
	if err := ctx.Err(); err != nil {
		t.Errorf("%s: %v", c.args, err)
	}
	return result{code, stdout.String(), stderr.String()}
}

// mustFail checks that a failure can be seen by a script and read by a person,
// and that the password cannot.
func mustFail(t *testing.T, c invocation, got result, code int, reason string) {
	t.Helper()
	if got.code != code {
		t.Errorf("%s: exit code %d, want %d", c.args, got.code, code)
	}
	if !strings.HasPrefix(got.stderr, "fencepost: ") || !strings.Contains(got.stderr, reason) {
		t.Errorf("%s: standard error is %q, want something about %q", c.args, got.stderr, reason)
	}
	if strings.Contains(got.stderr+got.stdout, password) {
		t.Errorf("%s: the password is shown: %q %q", c.args, got.stdout, got.stderr)
	}
}

func TestUnreachable(t *testing.T) {
	// Port 1 of the loopback is nobody's.
	for _, dsn := range []string{
		"postgres://me:" + password + "@127.0.0.1:1/db",
		"host=127.0.0.1 port=1 user=me password=" + password + " dbname=db",
		"host=127.0.0.1 port=1 user=me password='" + password + " and more' dbname=db",
	} {
		for _, c := range onDatabase {
			mustFail(t, c, run(t, c, "DATABASE_URL="+dsn), exitConnect, "refused")
			c.args = append(c.args[:len(c.args):len(c.args)], "--database-url", dsn)
			mustFail(t, c, run(t, c), exitConnect, "refused")
		}
	}
}

func TestWrongPassword(t *testing.T) {
	server := pgtest.Server(t, pg.Options{TCP: true})
	u, err := url.Parse(server.TCPURL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(u.User.Username(), password)
	for _, c := range onDatabase {
		mustFail(t, c, run(t, c, "DATABASE_URL="+u.String()), exitConnect, "password authentication failed")
	}
}

func TestUnreadableURL(t *testing.T) {
	for _, dsn := range []string{
		"postgres://me:" + password + "/1@127.0.0.1:1/db",
		"postgres://me:1/" + password + "@127.0.0.1:1/db",
		"postgres://me:1?" + password + "@127.0.0.1:1/db",
		"postgres://me:1#" + password + "@127.0.0.1:1/db",
		"postgres://me:%" + password + "@127.0.0.1:1/db",
		"postgres://me:" + password + "@127.0.0.1:port/db",
		"postgres://me:" + password + "@127.0.0.1:1/db?sslmode=wrong",
		"me:" + password + "@127.0.0.1:1/db",
		"host=127.0.0.1 password=" + password + " port",
		"host=127.0.0.1 password='" + password,
	} {
		for _, c := range onDatabase {
			mustFail(t, c, run(t, c, "DATABASE_URL="+dsn), exitUsage, "cannot be read")
		}
	}
}

func TestNoURL(t *testing.T) {
	for _, c := range onDatabase {
		mustFail(t, c, run(t, c), exitUsage, "DATABASE_URL")
	}
}

func TestNoTables(t *testing.T) {
	dsn := database(t)
	for _, c := range onDatabase {
		if c.args[0] == "migrate" || c.args[0] == "bench" {
			continue // makes or reports them, or makes its own
		}
		mustFail(t, c, run(t, c, "DATABASE_URL="+dsn, "FENCEPOST_SCHEMA=nowhere"), exitSchema, "fencepost migrate up --schema nowhere")
	}
}

func TestBadFlags(t *testing.T) {
	dsn := "postgres://me:" + password + "@127.0.0.1:1/db"
	for _, args := range [][]string{
		{"lst"},
		{"migrate"},
		{"migrate", "upp"},
		{"migrate", "down"},
		{"migrate", "down", "--to", "99"},
		{"migrate", "print", "--to", "99"},
		{"version", "please"},
		{"help", "lst"},
		{"help", "migrate", "upp"},
		{"completion"},
		{"completion", "tcsh"},
		{"enqueue", "a", "{}", "b"},
		{"enqueue", "a", "--at", "noon"},
		{"enqueue", "a", "--delay", "90"},
		{"enqueue", "a", "--priority", "high"},
		{"list", "--limit", "0"},
		{"list", "--status", "lost"},
		{"list", "all"},
		{"show"},
		{"show", "x"},
		{"show", "9223372036854775808"},
		{"show", "1", "2"},
		{"work"},
		{"work", "--exec", "true", "--queue", "a=0"},
		{"work", "--exec", "true", "--queue", "a=b"},
		{"work", "--exec", "true", "--queue", "a", "--queue", "a=2"},
		{"work", "--exec", "true", "--snooze", "0"},
		{"list", "--no-such-flag"},
		{"list", "-d" + dsn},
		{dsn},
		{"list", dsn},
		{"show", dsn},
		{"list", "--json=" + dsn},
		{"list", "--limit", dsn},
		{"retry"},
		{"cancel", "x"},
		{"delete", "9223372036854775808"},
		{"release", "1", "--all"},
		{"delete", dsn},
		{"delete", "--status", dsn},
		{"queue"},
		{"queue", "halt", "mail"},
		{"queue", "pause"},
		{"queue", "pause", "a", "b"},
		{"queue", "list", "mail"},
		{"worker"},
		{"worker", "list", dsn},
	} {
		c := invocation{args: args}
		mustFail(t, c, run(t, c, "DATABASE_URL="+dsn), exitUsage, "")
	}
}

// What only the client or the server can refuse.
func TestBadSettings(t *testing.T) {
	dsn := database(t)
	for _, args := range [][]string{
		{"enqueue", ""},
		{"enqueue", "a", "{"},
		{"enqueue", "a", `"\u0000"`},
		{"enqueue", "a", "--priority", "3"},
		{"enqueue", "a", "--max-attempts", "-1"},
		{"enqueue", "a", "--delay", "-1s"},
		{"enqueue", "a", "--delay", "1s", "--at", "2030-01-01T00:00:00Z"},
		{"work", "--exec", "true", "--lease", "1s"},
		{"work", "--exec", "true", "--poll", "1ms"},
		{"work", "--exec", "true", "--kind", ""},
		{"work", "--exec", "true", "--kind", "a", "--kind", "a"},
		{"work", "--exec", "true", "--queue", "=3"},
		{"queue", "pause", strings.Repeat("x", 129)},
	} {
		c := invocation{args: args}
		mustFail(t, c, run(t, c, "DATABASE_URL="+dsn), exitUsage, "")
	}
}

// full is a device without space.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestClosedStdout(t *testing.T) {
	dsn := database(t)
	script(t, dsn, "INSERT INTO fencepost.workers (worker_id) VALUES ('w')") // to be listed
	commands := append([]invocation{
		{args: []string{"version"}},
		{args: []string{"--help"}},
		{args: []string{"help", "list"}},
		{args: []string{"completion", "bash"}},
		{args: []string{"migrate", "print"}},
	}, onDatabase...)
	for _, c := range commands {
		switch c.args[0] {
		case "work":
			continue // prints nothing
		case "show":
			c.args = []string{"show", "9007199254740993"} // of the enqueue before it
		}
		for _, more := range [][]string{nil, {"--json"}} {
			if more != nil && (c.args[0] == "migrate" || slices.Contains(c.args, "--clean")) {
				continue // with nothing to do it prints nothing
			}
			c := invocation{args: append(c.args[:len(c.args):len(c.args)], more...), stdin: c.stdin}
			var stderr bytes.Buffer
			code := Run(t.Context(), c.args, []string{"DATABASE_URL=" + dsn}, strings.NewReader(c.stdin), full{}, &stderr)
			mustFail(t, c, result{code: code, stderr: stderr.String()}, exitFailed, "no space left")
		}
	}
}

// A reader that goes away is no reason to die in silence.
func TestBrokenPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var stderr bytes.Buffer
	cmd := command(ctx, "", "version")
	cmd.Stdout, cmd.Stderr = w, &stderr
	err = cmd.Run()
	w.Close()
	if err == nil || cmd.ProcessState.ExitCode() != exitFailed {
		t.Errorf("%v, want exit code %d", err, exitFailed)
	}
	if !strings.Contains(stderr.String(), "broken pipe") {
		t.Errorf("standard error is %q", stderr.String())
	}
}

// A stop while the database is awaited ends the command.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	began := time.Now()
	var stdout, stderr bytes.Buffer
	if code := Run(ctx, []string{"list"}, []string{"DATABASE_URL=" + database(t)}, nil, &stdout, &stderr); code == exitOK || stderr.Len() == 0 {
		t.Errorf("exit code %d, %q", code, stderr.String())
	}
	if took := time.Since(began); took > patience {
		t.Errorf("took %v", took)
	}
}

// slowInput says when it is read, and then has nothing until it is released.
type slowInput struct{ read, release chan struct{} }

func (in slowInput) Read([]byte) (int, error) {
	close(in.read)
	<-in.release
	return 0, io.EOF
}

// A signal ends an enqueue that waits for its input.
func TestInterruptedWhileReading(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	in := slowInput{make(chan struct{}), make(chan struct{})}
	defer close(in.release)
	code := make(chan int, 1)
	dsn := database(t)
	go func() {
		code <- Run(ctx, []string{"enqueue"}, []string{"DATABASE_URL=" + dsn}, in, io.Discard, io.Discard)
	}()
	select {
	case <-in.read:
	case <-time.After(patience):
		t.Fatal("nothing is read")
	}
	cancel()
	select {
	case got := <-code:
		if got == exitOK {
			t.Error("exit code 0")
		}
	case <-time.After(patience):
		t.Fatal("the command goes on waiting")
	}
}

func TestRedact(t *testing.T) {
	for in, want := range map[string]string{
		"dial postgres://me:s3cret@host/db: no":     "dial postgres://me:xxxxx@host/db: no",
		"PostgreSQL://me:s3@cret@host/db":           "PostgreSQL://me:xxxxx@host/db",
		"postgres://me@host/db":                     "postgres://me@host/db",
		"host=h password=s3cret user=u":             "host=h password=xxxxx user=u",
		`host=h PASSWORD = 's3 \' cret' user=u`:     "host=h PASSWORD = xxxxx user=u",
		"password authentication failed for user u": "password authentication failed for user u",
	} {
		if got := redact(in); got != want {
			t.Errorf("redact(%q) = %q, want %q", in, got, want)
		}
	}
}
