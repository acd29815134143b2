package seal

import "crypto/ed25519"

// infoSign derives the seed of the signing key (RFC 8032) of a secret key.
const infoSign = "holdfast/v1/seal/ed25519"

// Sign signs a message with the key derived from the ring's first key. Whoever
// signs two kinds of messages must keep them apart within the message.
func (r *Ring) Sign(message []byte) []byte { return ed25519.Sign(r.keys[0].signer, message) }

// SigningKeys returns the public keys of the ring, the one that Sign uses first.
func (r *Ring) SigningKeys() []ed25519.PublicKey {
	keys := make([]ed25519.PublicKey, 0, len(r.keys))
	for _, k := range r.keys {
		keys = append(keys, ed25519.PublicKey(k.signer[ed25519.PrivateKeySize-ed25519.PublicKeySize:]))
	}
	return keys
}
