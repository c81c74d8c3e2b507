package migrations

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"regexp"
	"sort"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

//go:embed sql/*.sql
var files embed.FS

// Migration is one numbered step of the schema.
type Migration struct {
	Version int
	Name    string
	// OldestCode is the oldest Latest with which the schema still works after
	// this step: a worker older than that must not run on it.
	OldestCode int

	up, down string // templates
}

// Latest is the newest version that this code knows. Code works with its own
// version and, as long as their OldestCode allows it, with later ones.
var Latest = all[len(all)-1].Version

var all = load(files)

var (
	fileName   = regexp.MustCompile(`^(\d{3})_([a-z0-9_]+)\.up\.sql$`)
	oldestCode = regexp.MustCompile(`(?m)^-- oldest code: (\d+)$`)
)

// load reads the embedded files. They are part of the program, so a bad one is
// a bug that shows at start.
func load(fsys fs.FS) []Migration {
	names, err := fs.Glob(fsys, "sql/*.up.sql")
	if err != nil {
		panic(err)
	}
	sort.Strings(names)
	var list []Migration
	for _, name := range names {
		part := fileName.FindStringSubmatch(strings.TrimPrefix(name, "sql/"))
		if part == nil {
			panic("migrations: bad file name " + name)
		}
		version, _ := strconv.Atoi(part[1])
		if version != len(list)+1 {
			panic("migrations: version out of sequence: " + name)
		}
		up := mustRead(fsys, name)
		head := oldestCode.FindStringSubmatch(up)
		if head == nil {
			panic("migrations: no oldest code in " + name)
		}
		oldest, _ := strconv.Atoi(head[1])
		list = append(list, Migration{
			Version:    version,
			Name:       part[2],
			OldestCode: oldest,
			up:         up,
			down:       mustRead(fsys, strings.TrimSuffix(name, ".up.sql")+".down.sql"),
		})
	}
	return list
}

func mustRead(fsys fs.FS, name string) string {
	text, err := fs.ReadFile(fsys, name)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// checksum identifies the text of a migration, whatever schema it runs in.
func (m Migration) checksum() string {
	sum := sha256.Sum256([]byte(m.up))
	return hex.EncodeToString(sum[:])
}

// fill puts the schema's name into a template.
func fill(template, schema string) string {
	return strings.NewReplacer(
		"{{schema}}", pgx.Identifier{schema}.Sanitize(),
		"{{channel}}", quoteText(schema),
	).Replace(template)
}

// quoteText writes a text literal. Backslashes need no care: servers that we
// support treat them as plain characters in '…'.
func quoteText(s string) string {
	return "'" + strings.ReplaceAll(s, "'", "''") + "'"
}

// checkSchema refuses names that PostgreSQL would refuse or, worse, cut short:
// a name that is cut would be one name for tables and another for the channel.
func checkSchema(schema string) error {
	switch {
	case schema == "":
		return fmt.Errorf("schema name is empty")
	case len(schema) > 63:
		return fmt.Errorf("schema name %q is %d bytes long; PostgreSQL cuts names at 63", schema, len(schema))
	case strings.ContainsRune(schema, 0):
		return fmt.Errorf("schema name %q contains a zero character", schema)
	case strings.HasPrefix(schema, "pg_"):
		return fmt.Errorf("schema name %q: names that begin with pg_ belong to PostgreSQL", schema)
	}
	return nil
}
