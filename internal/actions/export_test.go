package actions

// Rested ends the rest of every breaker.
func (s *Service) Rested() {
	s.breakers.mu.Lock()
	defer s.breakers.mu.Unlock()
	clear(s.breakers.byID)
}
