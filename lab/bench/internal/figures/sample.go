package figures

// Sample is one figure of one round.
type Sample struct {
	Subject  string  `json:"subject"`  // such as "drain"
	Who      string  `json:"who"`      // such as "river"
	Settings string  `json:"settings"` // in words; "" if it does not matter
	Round    int     `json:"round"`
	Figure   string  `json:"figure"` // such as "jobs/s"
	Value    float64 `json:"value"`
}
