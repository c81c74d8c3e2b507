package figures

// Sample is one figure of one round.
type Sample struct {
	Subject  string  `json:"subject"`  // such as "drain"; figures of one subject can be compared
	Who      string  `json:"who"`      // such as "river"
	Row      string  `json:"row"`      // such as "river, best"
	Best     bool    `json:"best"`     // at the settings that its docs recommend for speed, not at its defaults
	Settings string  `json:"settings"` // in words; "" if they do not matter
	Round    int     `json:"round"`
	Figure   string  `json:"figure"` // such as "jobs/s"
	Value    float64 `json:"value"`
}
