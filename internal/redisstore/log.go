package redisstore

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"
)

// RouteLibraryLog sends to log, at debug level, what the client library would
// print on standard error, such as each address it could not reach. It holds
// for the whole process and all its stores, so it is for the program to call.
func RouteLibraryLog(log *slog.Logger) { redis.SetLogger(libraryLog{log}) }

type libraryLog struct{ log *slog.Logger }

// Printf is what the library calls.
func (l libraryLog) Printf(ctx context.Context, format string, v ...any) {
	l.log.DebugContext(ctx, "redis client", "message", fmt.Sprintf(format, v...))
}
