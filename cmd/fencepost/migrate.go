package main

import (
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/fencepost-go/fencepost/migrations"
)

func (a *app) migrateCommand() *cobra.Command {
	return parent(
		&cobra.Command{Use: "migrate", Short: "Create, update or remove the queue's tables"},
		a.migrateUpCommand(), a.migrateDownCommand(), a.migrateStatusCommand(), a.migratePrintCommand(), a.migrateGrantsCommand(),
	)
}

func (a *app) migrateUpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "up",
		Short: "Bring the schema to the newest version, creating it if needed",
		Long: `Bring the schema to the newest version, creating it if needed.

Any number of processes may do this at once, also while workers run. A table
that somebody else has locked is waited for in steps of 0.3 s, so that workers
go on meanwhile; after about a minute the error says who holds it.

Roles that got their rights by "fencepost migrate grants" have them on what is
new as well.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withConn(cmd.Context(), func(conn *pgx.Conn) error {
				done, err := migrations.Up(cmd.Context(), conn, a.schema)
				return a.printMigrated("applied", done, err)
			})
		},
	}
}

func (a *app) migrateDownCommand() *cobra.Command {
	var to int
	cmd := &cobra.Command{
		Use:   "down --to VERSION",
		Short: "Take the schema back to a version; with --to 0 every job is lost",
		Long: `Take the schema back to a version; with --to 0 every job is lost.

Stop first every worker that needs more than that version: it would fail. Jobs
stay, but what the older version does not know is lost: a paused queue goes on.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("to") { // no default: a slip of the hand must not delete the jobs
				return usage("--to is missing: say which version to go back to; 0 removes every table, with its jobs")
			}
			if to < 0 || to > migrations.Latest {
				return usage("--to is %d; must be between 0 and %d", to, migrations.Latest)
			}
			return a.withConn(cmd.Context(), func(conn *pgx.Conn) error {
				done, err := migrations.Down(cmd.Context(), conn, a.schema, to)
				return a.printMigrated("reverted", done, err)
			})
		},
	}
	cmd.Flags().IntVar(&to, "to", 0, "the version to go back to")
	return cmd
}

// printMigrated prints what was done, also when an error ended it.
func (a *app) printMigrated(verb string, done []migrations.Migration, err error) error {
	if len(done) == 0 && err == nil && !a.json {
		fmt.Fprintln(a.out, "nothing to do")
	}
	for _, m := range done {
		if !a.json {
			fmt.Fprintf(a.out, "%s %d %s\n", verb, m.Version, m.Name)
			continue
		}
		if err := a.printJSON(struct {
			Version int    `json:"version"`
			Name    string `json:"name"`
			State   string `json:"state"`
		}{m.Version, m.Name, verb}); err != nil {
			return err
		}
	}
	return err
}

func (a *app) migrateStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "List the versions of the schema, applied and pending",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withConn(cmd.Context(), func(conn *pgx.Conn) error {
				states, err := migrations.Status(cmd.Context(), conn, a.schema)
				if err != nil {
					return err
				}
				return a.printStates(states)
			})
		},
	}
}

func (a *app) printStates(states []migrations.State) error {
	var rows []table.Row
	for _, s := range states {
		label := stateLabel(s)
		if !a.json {
			rows = append(rows, table.Row{s.Version, s.Name, label, timestamp(s.AppliedAt)})
			continue
		}
		if err := a.printJSON(struct {
			Version   int        `json:"version"`
			Name      string     `json:"name"`
			State     string     `json:"state"`
			AppliedAt *time.Time `json:"applied_at"`
		}{s.Version, s.Name, label, timeOrNull(s.AppliedAt)}); err != nil {
			return err
		}
	}
	if a.json {
		return nil
	}
	return a.printTable(table.Row{"version", "name", "state", "applied at"}, rows)
}

func stateLabel(s migrations.State) string {
	switch {
	case s.Unknown:
		return "unknown" // applied by a newer program
	case s.Changed:
		return "changed" // what was applied is not what this program has
	case s.AppliedAt.IsZero():
		return "pending"
	default:
		return "applied"
	}
}

func (a *app) migratePrintCommand() *cobra.Command {
	var from, to int
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print the migrations as SQL, without a database",
		Long: `Print the migrations as SQL, without a database, for people who apply SQL by
other means. The rows by which "migrate status" knows them are part of it.
With --from above --to it is the way back. Rights for roles that do not own the
tables are printed by "fencepost migrate grants".`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			if a.json {
				return usage("--json: what this prints is SQL")
			}
			for _, v := range []int{from, to} {
				if v < 0 || v > migrations.Latest {
					return usage("versions are between 0 and %d", migrations.Latest)
				}
			}
			return migrations.Print(a.out, a.schema, from, to)
		},
	}
	cmd.Flags().IntVar(&from, "from", 0, "the version that the database has")
	cmd.Flags().IntVar(&to, "to", migrations.Latest, "the version that it gets")
	return cmd
}
