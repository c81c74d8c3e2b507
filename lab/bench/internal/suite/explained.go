package suite

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"
)

// explained is a statement that was run, and the plan that it was run by.
type explained struct {
	Text  string   `json:"Query Text"`
	Plan  planNode `json:"Plan"`
	state string
}

// planNode is a part of a plan.
type planNode struct {
	Type     string     `json:"Node Type"`
	Relation string     `json:"Relation Name"`
	Index    string     `json:"Index Name"`
	Cond     string     `json:"Index Cond"`
	Filter   string     `json:"Filter"`
	Part     string     `json:"Parent Relationship"`
	Plans    []planNode `json:"Plans"`
}

// scans collects the Seq Scans on the table and the Hash Joins of it.
func (p planNode) scans(table string) (found []string) {
	if p.Type == "Seq Scan" && p.Relation == table || p.Type == "Hash Join" && p.joins(table) {
		found = append(found, p.Type)
	}
	for _, child := range p.Plans {
		found = append(found, child.scans(table)...)
	}
	return found
}

// joins says whether rows of the table are an input of the join. What a join
// only asks, for each row or once, is none.
func (p planNode) joins(table string) bool {
	return slices.ContainsFunc(p.Plans, func(child planNode) bool {
		return (child.Part == "Outer" || child.Part == "Inner") && (child.Relation == table || child.joins(table))
	})
}

// wholes collects what reads the table, or an index of it, from one end to the
// other, so that it costs more with every row that there is. The first entry of
// an index is not that.
func (p planNode) wholes(table string) (found []string) {
	indexed := strings.HasPrefix(p.Index, table+"_")
	switch {
	case p.Type == "Limit" && len(p.Plans) == 1 && p.Plans[0].Type == "Index Only Scan" && p.Plans[0].Filter == "":
		return nil
	case p.Type == "Seq Scan" && p.Relation == table, indexed && p.Cond == "":
		found = append(found, strings.TrimSpace(p.Type+" "+p.Index)+" without a condition")
	}
	for _, child := range p.Plans {
		found = append(found, child.wholes(table)...)
	}
	return found
}

// summary is how the statement begins, on one line.
func (e explained) summary() string {
	words := strings.Join(strings.Fields(e.Text), " ")
	return words[:min(len(words), 160)]
}

// plansHeard collects the plans that the server tells a session of while it
// runs its statements: what it did, and not what it would do if asked.
type plansHeard struct {
	mu   sync.Mutex
	all  []explained
	errs []error
}

// sqlExplainAll makes the server tell them. It is the session's first statement.
const sqlExplainAll = `
LOAD 'auto_explain';
SET auto_explain.log_min_duration = 0;
SET auto_explain.log_level = notice;
SET auto_explain.log_format = json;
-- The plans that are made once and kept, whatever the parameters.
SET plan_cache_mode = force_generic_plan`

// notice is the session's handler of notices.
func (h *plansHeard) notice(_ *pgconn.PgConn, n *pgconn.Notice) {
	_, text, ok := strings.Cut(n.Message, "plan:\n")
	if !ok {
		return
	}
	var e explained
	err := json.Unmarshal([]byte(text), &e)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.errs = append(h.errs, fmt.Errorf("plan: %w, in\n%s", err, text))
		return
	}
	h.all = append(h.all, e)
}

// take returns what was heard since the last call.
func (h *plansHeard) take() (all []explained, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all, err = h.all, errors.Join(h.errs...)
	h.all, h.errs = nil, nil
	return all, err
}
