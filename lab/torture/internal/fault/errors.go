package fault

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// failed is the error of a statement.
type failed struct {
	sql string
	err error
}

func (f *failed) Error() string { return fmt.Sprintf("%.100s: %v", f.sql, f.err) }

func (f *failed) Unwrap() error { return f.err }

// ignoreLost takes it for no error that a session is gone, or cannot be had:
// another fault that goes on at once may be the reason, and to be without its
// session a fault needs no help.
func ignoreLost(err error) error {
	var refused *pgconn.PgError
	var dial *pgconn.ConnectError
	var network net.Error
	switch {
	case err == nil, errors.As(err, &dial), errors.As(err, &network), pgconn.SafeToRetry(err), errors.Is(err, net.ErrClosed):
		return nil
	case errors.As(err, &refused):
		// Of a connection, or an intervention of the operator.
		if strings.HasPrefix(refused.Code, "08") || strings.HasPrefix(refused.Code, "57P") {
			return nil
		}
	case strings.Contains(err.Error(), "conn closed"), strings.Contains(err.Error(), "EOF"):
		return nil
	}
	return err
}

func isCode(err error, code string) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && refused.Code == code
}
