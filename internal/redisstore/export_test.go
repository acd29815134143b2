package redisstore

import "context"

// OpenAs is Open of a release that knows the formats up to one.
func OpenAs(ctx context.Context, opts Options, known uint32) (*Store, error) {
	return open(ctx, opts, known)
}
