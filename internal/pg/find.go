package pg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// oldest is the oldest major version that Fencepost works with.
const oldest = 14

// installation is a directory with the programs postgres and initdb.
type installation struct {
	bin     string
	major   int
	version string // as "postgres --version" prints it
	found   string // the bin that was found, whatever it was copied to
}

// The installed servers are looked for here, besides pg_config and PATH.
var installedIn = []string{
	"/usr/lib/postgresql/*/bin", // Debian
	"/usr/pgsql-*/bin",          // Red Hat
	"/opt/homebrew/opt/postgresql@*/bin",
	"/usr/local/opt/postgresql@*/bin",
	"/Applications/Postgres.app/Contents/Versions/*/bin",
}

// find goes through the places that the package comment lists. The first
// place that has a fitting version wins; in one place, the newest does.
func find(ctx context.Context, o Options, own *owner) (installation, error) {
	if o.Bin != "" {
		inst, err := probe(ctx, o.Bin)
		if err == nil && o.Major != 0 && inst.major != o.Major {
			err = fmt.Errorf("%s holds %s, not %d", o.Bin, inst.version, o.Major)
		}
		return inst, err
	}

	var tried []error
	if bin := os.Getenv("FENCEPOST_PG_BIN"); bin != "" {
		inst, err := probe(ctx, bin)
		if err != nil {
			return inst, fmt.Errorf("FENCEPOST_PG_BIN: %w", err)
		}
		if o.fits(inst) {
			return inst, nil
		}
		tried = append(tried, fmt.Errorf("FENCEPOST_PG_BIN holds %s", inst.version))
	} else {
		tried = append(tried, errors.New("FENCEPOST_PG_BIN is not set"))
	}

	var newest installation
	for _, bin := range installed(ctx) {
		inst, err := probe(ctx, bin)
		switch {
		case err != nil:
			tried = append(tried, err)
		case !o.fits(inst):
			tried = append(tried, fmt.Errorf("%s holds %s", bin, inst.version))
		case inst.major > newest.major:
			newest = inst
		}
	}
	if newest.major != 0 {
		return newest, nil
	}
	tried = append(tried, errors.New("nothing more was found by pg_config, on PATH and where packages put it"))

	inst, err := fetched(ctx, o, own)
	if err == nil {
		return inst, nil
	}
	if ctx.Err() != nil {
		return installation{}, err
	}
	return installation{}, notFound(o.Major, append(tried, err))
}

func (o Options) fits(inst installation) bool {
	if o.Major == 0 {
		return inst.major >= oldest
	}
	return inst.major == o.Major
}

// NotFoundError means that there is no server that could be started. Whoever
// does not work with one that runs already says something else to it.
type NotFoundError struct {
	Wanted string // which version
	Tried  error  // what was tried
}

// Helps is what helps against a NotFoundError, whoever wants a server.
const Helps = "set FENCEPOST_PG_BIN to a directory with postgres and initdb; " +
	"install PostgreSQL (Debian: apt-get install postgresql; macOS: brew install postgresql@18); " +
	"install Node.js with npm and allow it to reach its registry"

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("no server of %s was found:\n%v\nAny of these helps: set DATABASE_URL to a running server; %s", e.Wanted, e.Tried, Helps)
}

func (e *NotFoundError) Unwrap() error { return e.Tried }

func notFound(major int, tried []error) error {
	wanted := fmt.Sprintf("version %d or newer", oldest)
	if major != 0 {
		wanted = fmt.Sprintf("version %d", major)
	}
	return &NotFoundError{wanted, errors.Join(tried...)}
}

// installed returns the directories in which a server may be installed.
func installed(ctx context.Context) []string {
	var bins []string
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		bins = append(bins, strings.TrimSpace(string(out)))
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			bins = append(bins, filepath.Dir(path))
		}
	}
	for _, pattern := range installedIn {
		found, _ := filepath.Glob(pattern) // only a bad pattern is an error
		bins = append(bins, found...)
	}
	seen := make(map[string]bool)
	var servers []string
	for _, bin := range bins {
		// Client packages bring pg_config, and directories, without a server.
		if _, err := os.Stat(filepath.Join(bin, "postgres")); err == nil && !seen[bin] {
			seen[bin] = true
			servers = append(servers, bin)
		}
	}
	return servers
}

var versionText = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// probe runs the server in bin to learn its version.
func probe(ctx context.Context, bin string) (installation, error) {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return installation{}, err
	}
	if _, err := os.Stat(filepath.Join(bin, "initdb")); err != nil {
		return installation{}, err
	}
	out, err := exec.CommandContext(ctx, filepath.Join(bin, "postgres"), "--version").CombinedOutput()
	if err != nil {
		return installation{}, fmt.Errorf("%s does not run: %w: %s", filepath.Join(bin, "postgres"), err, out)
	}
	m := versionText.FindSubmatch(out)
	if m == nil {
		return installation{}, fmt.Errorf("%s has an unknown version: %s", filepath.Join(bin, "postgres"), out)
	}
	major, err := strconv.Atoi(string(m[1]))
	return installation{bin: bin, major: major, version: strings.TrimSpace(string(out)), found: bin}, err
}

// reachable returns the installation itself if the server's user may run it,
// or else a copy in home: root's own directories are often closed to others.
func (i installation) reachable(own *owner, home string) (installation, error) {
	if own.canReach(i.bin) {
		return i, nil
	}
	copied := filepath.Join(home, "postgresql")
	if err := copyTree(filepath.Dir(i.bin), copied, own); err != nil {
		return installation{}, fmt.Errorf("copy %s for the server's user: %w", filepath.Dir(i.bin), err)
	}
	i.bin = filepath.Join(copied, filepath.Base(i.bin))
	return i, nil
}
