package fault

var processFaults, backendFaults, serverFaults, networkFaults, bellFaults, poolFaults, diskFaults, failoverFaults, clockFaults, ddlFaults []Fault

func severalFaults() []Fault { return nil }
