package stage

// Begin is what the supervisor does when the time of the next life has come.
func (p *Process) Begin() error { return p.begin() }
