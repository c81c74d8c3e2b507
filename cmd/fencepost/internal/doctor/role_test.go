package doctor

import (
	"slices"
	"testing"

	"github.com/fencepost-go/fencepost/migrations"
)

func TestWhatARoleMayDo(t *testing.T) {
	t.Parallel()
	const usage = "GRANT USAGE ON SCHEMA {{schema}} TO {{role}};"
	const worker = usage + `
		GRANT SELECT, UPDATE, DELETE ON {{schema}}.jobs TO {{role}};
		GRANT SELECT, INSERT, UPDATE, DELETE ON {{schema}}.finished, {{schema}}.workers, {{schema}}.claims TO {{role}};
		GRANT SELECT ON {{schema}}.queues, {{schema}}.all_jobs, {{schema}}.schema_migrations TO {{role}};
		GRANT USAGE ON SEQUENCE {{schema}}.worker_keys TO {{role}};`
	w := setUp(t)
	for name, test := range map[string]struct {
		grants string
		may    []string
		want   Verdict
		words  []string
	}{
		"nothing":            {"", nil, Warn, []string{"may be neither worker nor producer nor monitor"}},
		"only the schema":    {usage, nil, Warn, []string{"neither"}},
		"INSERT":             {usage + "GRANT INSERT, SELECT (id) ON {{schema}}.jobs TO {{role}}", []string{"producer"}, OK, []string{"not worker"}},
		"INSERT without ids": {usage + "GRANT INSERT ON {{schema}}.jobs TO {{role}}", nil, Warn, nil},
		"the function":       {usage + "GRANT EXECUTE ON FUNCTION {{schema}}.enqueue TO {{role}}", []string{"producer"}, OK, nil},
		"no use of the schema": {
			"GRANT INSERT, SELECT (id) ON {{schema}}.jobs TO {{role}}", nil, Warn, nil,
		},
		"read":   {usage + "GRANT SELECT ON ALL TABLES IN SCHEMA {{schema}} TO {{role}}", []string{"monitor"}, OK, nil},
		"worker": {worker, []string{"worker", "monitor"}, OK, nil},
		"half a worker": {
			worker + "REVOKE DELETE ON {{schema}}.finished FROM {{role}}; REVOKE ALL ON SEQUENCE {{schema}}.worker_keys FROM {{role}}",
			[]string{"monitor"},
			Warn,
			[]string{"cannot work: it lacks", "DELETE on finished", "USAGE on worker_keys", "migrate grants"},
		},
		"owner": {"ALTER TABLE {{schema}}.jobs OWNER TO {{role}}", []string{"owner"}, Warn, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := setUp(t)
			w.role(test.grants)
			f := w.want("rights", test.want, test.words...)
			if got := f.Figures["may_be"].([]string); !slices.Equal(got, test.may) && len(got)+len(test.may) > 0 {
				t.Errorf("may be %q; want %q", got, test.may)
			}
		})
	}
	f := w.want("rights", OK)
	if got := f.Figures["may_be"].([]string); !slices.Equal(got, []string{"owner", "worker", "producer", "monitor"}) {
		t.Errorf("a superuser may be %q", got)
	}
}

// What the grants of the migrations give is what is asked for here.
func TestRolesByTheGrants(t *testing.T) {
	t.Parallel()
	for want, roles := range map[string]func(role string) migrations.Roles{
		"owner":    func(r string) migrations.Roles { return migrations.Roles{Owner: r} },
		"worker":   func(r string) migrations.Roles { return migrations.Roles{Workers: []string{r}} },
		"producer": func(r string) migrations.Roles { return migrations.Roles{Producers: []string{r}} },
		"monitor":  func(r string) migrations.Roles { return migrations.Roles{Monitors: []string{r}} },
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			w := setUp(t)
			script, err := migrations.Grants(testSchema, roles(w.role("")))
			if err != nil {
				t.Fatal(err)
			}
			w.script(script)
			f := w.want("rights", OK)
			if got := f.Figures["may_be"].([]string); !slices.Contains(got, want) || slices.Contains(got, "owner") != (want == "owner") {
				t.Errorf("may be %q; want %s", got, want)
			}
		})
	}
}
