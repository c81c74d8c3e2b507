package main

import (
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/fencepost-go/fencepost/migrations"
)

const grantsHelp = `Print the SQL that gives roles their rights on the tables, or run it.

  --producer ROLE  enqueues by INSERT, by the client and by the SQL function
                   enqueue, and can do nothing else
  --worker ROLE    works jobs and does whatever an operator does: retry, cancel,
                   delete, pause. It can change rows, but no table
  --monitor ROLE   reads everything, payloads included
  --owner ROLE     becomes the owner of the schema and of our tables: the role
                   that runs "fencepost migrate up". It needs no right to create
                   in the database

Each may be given several times, but for the owner, and a role may be in more
than one place. The roles must exist (CREATE ROLE app LOGIN). Rights are only
added, and doing it again changes nothing.

Who runs the SQL has to own the tables or be a superuser. Workers and monitors
get the same rights on what later migrations make, if these are run by the
owner; with neither --owner nor --apply that is the role that runs the SQL.
The schema must be of this program's version: run "fencepost migrate up" first.`

func (a *app) migrateGrantsCommand() *cobra.Command {
	var roles migrations.Roles
	var apply bool
	cmd := &cobra.Command{
		Use:   "grants",
		Short: "Print or apply the rights of producers, workers, monitors and the owner",
		Long:  grantsHelp,
		Example: `  fencepost migrate grants --worker app --producer shop | psql -v ON_ERROR_STOP=1 -1 "$DATABASE_URL"
  fencepost migrate grants --worker app --monitor grafana --apply`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(roles.Producers)+len(roles.Workers)+len(roles.Monitors) == 0 && !cmd.Flags().Changed("owner") {
				return usage("no role given; name at least one: --producer may only enqueue, --worker works and operates, --monitor reads, --owner migrates")
			}
			if cmd.Flags().Changed("owner") && roles.Owner == "" {
				return usage("--owner is empty")
			}
			script, err := migrations.Grants(a.schema, roles)
			if err != nil {
				return usage("%w", err)
			}
			if !apply {
				if a.json {
					return usage("--json: what this prints is SQL; with --apply it prints what was granted")
				}
				_, err := a.out.WriteString(script)
				return err
			}
			return a.withConn(cmd.Context(), func(conn *pgx.Conn) error {
				if err := migrations.Grant(cmd.Context(), conn, a.schema, roles); err != nil {
					return err
				}
				return a.printGranted(roles)
			})
		},
	}
	flags := cmd.Flags()
	// Arrays, since a slice would split a name at its comma.
	flags.StringArrayVar(&roles.Producers, "producer", nil, "a role that may enqueue")
	flags.StringArrayVar(&roles.Workers, "worker", nil, "a role that may work and operate")
	flags.StringArrayVar(&roles.Monitors, "monitor", nil, "a role that may read")
	flags.StringVar(&roles.Owner, "owner", "", "the role that gets the schema and its tables, to migrate them")
	flags.BoolVar(&apply, "apply", false, "run the SQL, in one transaction, instead of printing it")
	return cmd
}

func (a *app) printGranted(roles migrations.Roles) error {
	var owners []string
	if roles.Owner != "" {
		owners = append(owners, roles.Owner)
	}
	for _, list := range []struct {
		rights string
		names  []string
	}{{"owner", owners}, {"producer", roles.Producers}, {"worker", roles.Workers}, {"monitor", roles.Monitors}} {
		for _, name := range list.names {
			if !a.json {
				fmt.Fprintf(a.out, "%s has the rights of %s\n", printable(name), articled(list.rights))
				continue
			}
			if err := a.printJSON(struct {
				Role   string `json:"role"`
				Rights string `json:"rights"`
			}{name, list.rights}); err != nil {
				return err
			}
		}
	}
	return nil
}

func articled(noun string) string {
	if noun == "owner" {
		return "the owner"
	}
	return "a " + noun
}
