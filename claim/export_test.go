package claim

import (
	"slices"
	"strings"
	"testing"
)

// The statements by name, for tests that cut a guard out of one.
const (
	SQLSettings = sqlSettings
	SQLClaim    = sqlClaim
	SQLNext     = sqlNext
	SQLDrained  = sqlDrained
	SQLFinish   = sqlFinish
	SQLClose    = sqlClose
	SQLAdopt    = sqlAdopt
	SQLComplete = sqlComplete
	SQLExtend   = sqlExtend
	SQLProgress = sqlProgress
	SQLTick     = sqlTick
	SQLByLeases = sqlTickByLeases
	SQLPrune    = sqlPrune
	SQLRegister = sqlRegister
	SQLSweep    = sqlSweep
	SQLGet      = sqlGet
	SQLCancel   = sqlCancel
	SQLRelease  = sqlRelease
	SQLRetry    = sqlRetry
	SQLDelete   = sqlDelete
	SQLCheck    = sqlCheck
	SQLResume   = sqlResume
	SQLIDs      = sqlIDs
	SQLList     = sqlList
)

const SQLUnspent = sqlUnspent

// Untouched says that a claim passes over what others may be claiming.
func (l Look) Untouched() bool { return l.untouched }

var Statements = statements

var Classify = classify

// SQL returns a statement as it is sent.
func (t *Table) SQL(template string) string { return t.sql(template) }

// Mutant returns the statements for the given schema with a change in one of
// them: each odd string of edits is replaced by the one that follows it, and
// must be there exactly once.
func Mutant(t testing.TB, schema, template string, edits ...string) *Table {
	t.Helper()
	if !slices.Contains(statements, template) {
		t.Fatal("no such statement")
	}
	mutated := template
	for i := 0; i < len(edits); i += 2 {
		if n := strings.Count(mutated, edits[i]); n != 1 {
			t.Fatalf("the statement has %d times, not once, the text to be replaced: %s", n, edits[i])
		}
		mutated = strings.Replace(mutated, edits[i], edits[i+1], 1)
	}
	healthy := In(schema)
	mutated = names(schema).Replace(mutated)
	return &Table{sql: func(asked string) string {
		if asked == template {
			return mutated
		}
		return healthy.sql(asked)
	}}
}
