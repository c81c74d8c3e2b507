package doctor

import "testing"

func TestBells(t *testing.T) {
	t.Parallel()
	w := setUp(t)
	w.want("bells", OK, "each new job rings")
	w.script(`INSERT INTO {{schema}}.queues (name, bell, quiet_slot) VALUES ('a', 'always', NULL), ('b', 'auto', 3), ('c', 'auto', 4);
		SELECT {{schema}}.promise(3, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + 2900000)`)
	w.want("bells", OK, "a always rings; b is silent now")
	w.script("SELECT {{schema}}.promise(3, 0)")
	w.want("bells", OK, "a always rings")
	w.script("INSERT INTO {{schema}}.queues (name, bell) VALUES ('d e', 'never')")
	w.want("bells", OK, "d e never rings: its jobs wait for the poll interval")
	w.script(`DELETE FROM {{schema}}.queues; INSERT INTO {{schema}}.queues (name, quiet_slot) SELECT 'q' || n, n FROM generate_series(0, 63) AS n`)
	w.want("bells", OK, "all 64 slots")

	w.script("REVOKE EXECUTE ON FUNCTION {{schema}}.promised(integer) FROM PUBLIC")
	w.role("GRANT USAGE ON SCHEMA {{schema}} TO {{role}}; GRANT SELECT ON ALL TABLES IN SCHEMA {{schema}} TO {{role}}")
	w.want("bells", Skip, "missing right: permission denied for function promised")
}
