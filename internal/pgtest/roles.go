package pgtest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Roles makes roles that may log in and have no rights, unless they are there.
// They belong to the server, not to a database, and stay: the templates of
// other tests have given them rights. A prepare func that grants some calls it.
func Roles(ctx context.Context, dsn string, names ...string) error {
	return onServer(ctx, dsn, func(conn *pgx.Conn) error {
		for _, name := range names {
			sql := "CREATE ROLE " + quote(name) + " LOGIN"
			if p := password(dsn, name); p != "" {
				sql += " PASSWORD '" + p + "'"
			}
			// Other test binaries do the same at this very moment: 23505 is the
			// answer to who came second by a little.
			if err := run(ctx, conn, sql); err != nil && !isCode(err, "42710") && !isCode(err, "23505") {
				return err
			}
		}
		return nil
	})
}

// As returns the connection string dsn, which New or a server gave, for one of
// Roles.
func As(t testing.TB, dsn, role string) string {
	t.Helper()
	if !isURL(dsn) {
		return fmt.Sprintf("%s user=%s password='%s'", dsn, role, password(dsn, role))
	}
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal("the connection string is not a URL") // the error would quote its password
	}
	u.User = url.User(role)
	if p := password(dsn, role); p != "" {
		u.User = url.UserPassword(role, p)
	}
	return u.String()
}

// Admin returns the connection string of a database that New has made, for the
// owner of everything, whichever role dsn is for.
func Admin(t testing.TB, dsn string) string {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	server, err := shared.dsn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	admin, err := withDatabase(server, config.Database)
	if err != nil {
		t.Fatal(err)
	}
	return admin
}

// password is that of a role: none where the server's owner needs none, else
// one that all test binaries derive in the same way.
func password(dsn, role string) string {
	config, err := pgx.ParseConfig(dsn)
	if err != nil || config.Password == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(role + " " + config.Password))
	return fmt.Sprintf("%x", sum[:16])
}
