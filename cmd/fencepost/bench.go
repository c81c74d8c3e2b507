package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/fencepost-go/fencepost/cmd/fencepost/internal/bench"
)

var benchHelp = fmt.Sprintf(`Measure the database, and say what limits a queue there.

In a schema of its own it measures, one after the other: the round trip, the
commits of one connection, NOTIFY, the same with a durable claim by hand (the
floor), how soon a handler begins, Enqueue from 1 and from 16 clients, bulk, and
how fast a worker drains. Then it says in words what limits each: the disk, the
network, processors, a standby, a pooler, synchronous_commit.

It makes at most %d rows and takes about --seconds, 30 by default. It
loads the server meanwhile, so run it when nobody minds; what else the server
does is part of the figures. --schema does not matter: no queue of yours is
touched.

The schema is dropped at the end, also after Ctrl-C. If the bench is killed it
stays; the next run names it and --clean removes it. The role needs CREATE on
the database.`, bench.Jobs)

func (a *app) benchCommand() *cobra.Command {
	var seconds int
	var clean bool
	var listenURL string
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure the database, and say what limits a queue there",
		Long:  benchHelp,
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			limit := time.Duration(seconds) * time.Second
			if limit < bench.Least || limit > bench.Most {
				return usage("--seconds is %d; must be between %.0f and %.0f", seconds, bench.Least.Seconds(), bench.Most.Seconds())
			}
			listen, err := a.listenConfig(listenURL)
			if err != nil {
				return err
			}
			if clean {
				return a.withConn(cmd.Context(), func(conn *pgx.Conn) error { return a.benchClean(cmd.Context(), conn) })
			}
			config, err := a.config()
			if err != nil {
				return err
			}
			return a.bench(cmd.Context(), config, listen, limit)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&seconds, "seconds", 30, "how long to measure")
	flags.BoolVar(&clean, "clean", false, "only remove what runs that were killed have left")
	flags.StringVar(&listenURL, "listen-url", "", "the way on which workers listen, if it is another (default $FENCEPOST_LISTEN_URL)")
	return cmd
}

func (a *app) bench(ctx context.Context, config *pgxpool.Config, listen *pgx.ConnConfig, limit time.Duration) error {
	tell := narrator{out: a.stderr}
	defer tell.end()
	if err := a.withConn(ctx, func(conn *pgx.Conn) error { return nameLeftOvers(ctx, conn, &tell) }); err != nil {
		return err
	}
	seen, err := bench.Run(ctx, bench.Plan{
		Config: config, Listen: listen, Time: limit, Progress: tell.progress,
		Prepare: !strings.Contains(a.databaseURL, "default_query_exec_mode"),
	})
	tell.end()
	if err != nil {
		return benchError(err)
	}
	return a.printBench(seen)
}

// nameLeftOvers says whose schemas are there, before the figures that they may
// explain.
func nameLeftOvers(ctx context.Context, conn *pgx.Conn, tell *narrator) error {
	list, err := bench.LeftOvers(ctx, conn)
	for _, l := range list {
		if l.InUse {
			tell.line(fmt.Sprintf("another bench is running, in schema %s: both will be slower", l.Schema))
		} else {
			tell.line(fmt.Sprintf("schema %s is left over from a bench that was killed; fencepost bench --clean removes it", l.Schema))
		}
	}
	return err
}

// benchError lets the exit code tell a server out of reach from a bench that
// failed.
func benchError(err error) error {
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		return cannotConnect(err)
	}
	return err
}

func (a *app) printBench(seen bench.Seen) error {
	figures, verdicts := bench.Figures(seen), bench.Judge(seen)
	if a.json {
		return a.printBenchJSON(seen.Server, figures, verdicts)
	}
	fmt.Fprintf(a.out, "PostgreSQL %s, synchronous_commit %s\n\n", printable(seen.Server.Version), printable(seen.Server.SynchronousCommit))
	var rows []table.Row
	for _, f := range figures {
		rows = append(rows, table.Row{f.Name, f.Value, f.N, f.About})
	}
	if err := a.printTable(table.Row{"figure", "value", "n", ""}, rows); err != nil {
		return err
	}
	fmt.Fprintln(a.out)
	rows = nil
	for _, v := range verdicts {
		rows = append(rows, table.Row{v.About, v.Limit, v.Text})
	}
	return a.printTable(table.Row{"what", "limit", ""}, rows)
}

// printBenchJSON prints a figure or a verdict a line, and the server first.
func (a *app) printBenchJSON(server bench.Server, figures []bench.Figure, verdicts []bench.Verdict) error {
	err := a.printJSON(struct {
		Version           string `json:"version"`
		SynchronousCommit string `json:"synchronous_commit"`
		Fsync             bool   `json:"fsync"`
		Standbys          string `json:"synchronous_standby_names"`
		Pooled            bool   `json:"pooled"`
	}(server))
	for _, f := range figures {
		line := struct {
			Figure string   `json:"figure"`
			Value  *float64 `json:"value"` // null: it could not be measured
			Unit   string   `json:"unit"`
			N      int      `json:"n"`
		}{f.Name, nil, f.Unit, f.N}
		if f.N > 0 {
			line.Value = &f.Plain
		}
		err = errors.Join(err, a.printJSON(line))
	}
	for _, v := range verdicts {
		err = errors.Join(err, a.printJSON(struct {
			About string      `json:"about"`
			Limit bench.Limit `json:"limit"`
			Text  string      `json:"text"`
		}{v.About, v.Limit, v.Text}))
	}
	return err
}

func (a *app) benchClean(ctx context.Context, conn *pgx.Conn) error {
	list, err := bench.Clean(ctx, conn)
	if len(list) == 0 && err == nil && !a.json {
		fmt.Fprintln(a.out, "nothing to do")
	}
	for _, l := range list {
		state := "dropped"
		if l.InUse {
			state = "in use"
		}
		if !a.json {
			fmt.Fprintln(a.out, state, l.Schema)
			continue
		}
		if err := a.printJSON(struct {
			Schema string `json:"schema"`
			State  string `json:"state"`
		}{l.Schema, strings.ReplaceAll(state, " ", "_")}); err != nil {
			return err
		}
	}
	return err
}
