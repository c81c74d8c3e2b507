package peer

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// A host that vanishes closes nothing: the server's session, and the locks that
// it holds, would stay for two hours. With these it ends after about 25 s of
// silence, whether the server waits for us (probes after 10, 15, 20 s) or we
// for it (unacknowledged data). Each is in the unit that its parameter has.
const sqlKeepAlive = `SELECT set_config('tcp_keepalives_idle', '10', false), set_config('tcp_keepalives_interval', '5', false),
    set_config('tcp_keepalives_count', '3', false), set_config('tcp_user_timeout', '25000', false)`

// keepAlive makes the server look whether we are still there. Settings by SQL,
// not in the start-up packet, which poolers refuse. They are for TCP; over a
// Unix socket they do nothing. A server that refuses them goes without: the
// error is of interest only if it has cost the connection.
func keepAlive(ctx context.Context, conn *pgx.Conn) error {
	rows, err := conn.Query(ctx, sqlKeepAlive, pgx.QueryExecModeExec)
	if err == nil {
		rows.Close()
		err = rows.Err()
	}
	if conn.IsClosed() {
		return err
	}
	return nil
}
