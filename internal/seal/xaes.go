package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/subtle"
	"fmt"
)

const (
	nonceSize = 24
	tagSize   = 16
)

// xaes is XAES-256-GCM as specified at https://c2sp.org/XAES-256-GCM: the first
// half of the nonce selects an AES-256 key by a counter-mode KDF with CMAC
// (NIST SP 800-108r1), the second half is the nonce of AES-256-GCM under it.
type xaes struct {
	block cipher.Block
	k1    [aes.BlockSize]byte // the CMAC subkey for whole blocks (SP 800-38B, 6.1)
}

func newXAES(key []byte) (*xaes, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("set up cipher: %w", err)
	}
	x := &xaes{block: block}
	block.Encrypt(x.k1[:], x.k1[:])
	msb := byte(0)
	for i := len(x.k1) - 1; i >= 0; i-- {
		msb, x.k1[i] = x.k1[i]>>7, x.k1[i]<<1|msb
	}
	// 0x87 is the low byte of the polynomial of GF(2^128); multiplied rather
	// than branched on, so that the key's top bit does not show in the timing.
	x.k1[len(x.k1)-1] ^= msb * 0x87
	return x, nil
}

func (x *xaes) aead(nonce []byte) (cipher.AEAD, error) {
	var key [2 * aes.BlockSize]byte
	for i := range 2 {
		half := key[i*aes.BlockSize : (i+1)*aes.BlockSize]
		copy(half, []byte{0, byte(i + 1), 'X', 0})
		copy(half[4:], nonce[:nonceSize/2])
		subtle.XORBytes(half, half, x.k1[:])
		x.block.Encrypt(half, half)
	}
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, fmt.Errorf("set up cipher: %w", err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("set up cipher: %w", err)
	}
	return gcm, nil
}

// seal appends the ciphertext to dst. It panics if the standard library
// refuses a 32-byte AES key, which it documents not to do.
func (x *xaes) seal(dst, nonce, plaintext, aad []byte) []byte {
	gcm, err := x.aead(nonce)
	if err != nil {
		panic(err)
	}
	return gcm.Seal(dst, nonce[nonceSize/2:], plaintext, aad)
}

func (x *xaes) open(nonce, ciphertext, aad []byte) ([]byte, error) {
	gcm, err := x.aead(nonce)
	if err != nil {
		return nil, err
	}
	return gcm.Open(nil, nonce[nonceSize/2:], ciphertext, aad)
}
