package host

import (
	"context"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"
)

// Room is how many bytes the disk has left for the server's data.
func (h *Host) Room(ctx context.Context) (bytes int64, err error) {
	var folder string
	if err := h.admin(ctx, func(c *pgx.Conn) error {
		return c.QueryRow(ctx, "SHOW data_directory").Scan(&folder)
	}); err != nil {
		return 0, err
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(folder, &disk); err != nil {
		return 0, err
	}
	return int64(disk.Bavail) * disk.Bsize, nil
}
