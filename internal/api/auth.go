package api

import (
	"context"
	"net/http"
	"strings"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/tenants"
)

// authenticator finds out whose an API key is.
type authenticator interface {
	Authenticate(ctx context.Context, key string) (tenants.Principal, error)
	// Known says, without asking anybody, that a key was good a moment ago.
	Known(key string) bool
}

// access says which keys may make a call. A key that may not gets 403; whether
// it may see the thing the call names is the handler's business.
type access struct {
	public   bool               // no key at all
	platform bool               // the platform admin key
	tenant   bool               // a tenant's key with any of scopes
	scopes   []tenants.KeyScope // empty: any
}

func anyone() access { return access{public: true} }

func platform() access { return access{platform: true} }

func tenantKey(scopes ...tenants.KeyScope) access { return access{tenant: true, scopes: scopes} }

func platformOr(scopes ...tenants.KeyScope) access {
	return access{platform: true, tenant: true, scopes: scopes}
}

// check says whether a caller may make the call.
func (a access) check(p tenants.Principal) error {
	switch {
	case a.public:
		return nil
	case p.Platform && a.platform:
		return nil
	case p.Platform:
		return refuse(actions.Forbidden, "This call is made for one tenant and needs a key of that tenant, not the platform admin key. Nothing was done.")
	case !a.tenant:
		return refuse(actions.Forbidden, "This call needs the platform admin key. Nothing was done.")
	case len(a.scopes) == 0:
		return nil
	}
	names := make([]string, 0, len(a.scopes))
	for _, s := range a.scopes {
		if p.Can(s) {
			return nil
		}
		names = append(names, string(s))
	}
	return refuse(actions.Forbidden, "This API key lacks the scope this call needs ("+strings.Join(names, " or ")+"). Nothing was done; ask an operator for a key that has it.")
}

// authenticate reads the one credential of a request. Whatever is wrong with
// it, the answer is the same.
func authenticate(ctx context.Context, who authenticator, h http.Header) (tenants.Principal, error) {
	key, ok := bearer(h.Values("Authorization"))
	if !ok {
		return tenants.Principal{}, refuse(unauthenticated, "")
	}
	return who.Authenticate(ctx, key)
}

// bearer reads the value of the Authorization header: the scheme in any case
// and one blank (RFC 9110 section 11.4), once.
func bearer(values []string) (key string, ok bool) {
	if len(values) != 1 {
		return "", false
	}
	scheme, key, found := strings.Cut(values[0], " ")
	key = strings.TrimLeft(key, " ")
	if !found || key == "" || !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	return key, true
}
