package actions

import (
	"context"
	"fmt"
	"maps"

	"holdfast.dev/gateway/internal/connections"
	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/limits"
)

// credentials opens what a connection's vendor is shown. With OAuth that is an
// access token, which may have to be asked for first; it is among what is
// returned, so that it is masked like the rest.
func (s *Service) credentials(ctx context.Context, conn connections.Connection, auth connectors.Auth) (map[string]string, error) {
	creds, err := s.accounts.Credentials(conn)
	if err != nil || !auth.OAuth() {
		return creds, err
	}
	if s.tokens == nil {
		return nil, fmt.Errorf("%w: %s", connectors.ErrAuthType, auth.Type)
	}
	// It may have to wait for another's request for one.
	resume := limits.TurnOf(ctx).Rest()
	access, err := s.tokens.Access(ctx, conn, auth, creds)
	resume()
	if err != nil {
		return nil, fmt.Errorf("get access token: %w", err)
	}
	creds = maps.Clone(creds)
	creds[connectors.AccessToken] = access
	return creds, nil
}
