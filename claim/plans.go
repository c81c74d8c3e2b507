package claim

import "github.com/jackc/pgx/v5"

// A session keeps the plans of the statements of a trip: to make them takes as long
// as a trip with one job. But a plan is made by how large the tables are then, and
// most of the time a queue is empty. A plan that reads all of an empty table,
// because that is nothing, reads all of it for each job once there are many;
// statistics that tell the server otherwise come a minute later at best.
//
// So each trip learns how large the tables are before its own statements are
// planned, and when one has grown to more than twice its size since, the session is
// told to plan anew.

// sqlReplan makes the session forget its plans, not its statements.
const sqlReplan = `DISCARD PLANS`

// sizes are those of the tables that grow with the number of jobs, in bytes.
type sizes struct{ jobs, finished int64 }

// plans is what is known of the plans that a session keeps.
type plans struct {
	known bool
	made  sizes // no plan of a trip's statement was made when a table was smaller than that
	last  sizes
}

// sized is a size that makes no difference: whoever reads that much reads two
// pages.
const sized = 16 << 10

// outgrown says that some plan may have been made for a table of another kind.
func (p *plans) outgrown() bool {
	grown := func(made, last int64) bool { return last > 2*max(made, sized) }
	return p.known && (grown(p.made.jobs, p.last.jobs) || grown(p.made.finished, p.last.finished))
}

// saw takes the sizes before a trip's statements are planned, if they are. anew
// says that none has a plan.
func (p *plans) saw(s sizes, anew bool) {
	if !p.known || anew {
		p.made = s
	}
	// The server may plan anew by itself at any time, such as when a table was emptied.
	p.made = sizes{min(p.made.jobs, s.jobs), min(p.made.finished, s.finished)}
	p.known, p.last = true, s
}

// plansKey is where a connection has its plans.
const plansKey = "fencepost: plans"

// plansOf returns the plans of a session; nil if it keeps none, or db may be another
// session each time.
func plansOf(db DB) *plans {
	conn, ok := db.(*pgx.Conn)
	if !ok {
		return nil
	}
	data := conn.PgConn().CustomData()
	p, ok := data[plansKey].(*plans)
	if !ok {
		if conn.Config().DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
			p = &plans{}
		}
		data[plansKey] = p
	}
	return p
}

// onTrip begins the batch of a trip: like inOneGo, with plans that are kept, if db
// is one session.
func onTrip(t *Table, db DB) *pgx.Batch {
	p := plansOf(db)
	if p == nil {
		return inOneGo(t)
	}
	b := &pgx.Batch{}
	anew := p.outgrown()
	if anew {
		b.Queue(sqlReplan)
	}
	b.Queue(t.sql(sqlSettings), "force_generic_plan").QueryRow(func(row pgx.Row) error {
		var s sizes
		err := row.Scan(nil, nil, nil, nil, nil, nil, &s.jobs, &s.finished)
		if err == nil {
			p.saw(s, anew)
		}
		return err
	})
	return b
}
