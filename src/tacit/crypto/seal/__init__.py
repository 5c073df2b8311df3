"""Microsoft SEAL through ``tenseal.sealapi``: what BFV and CKKS have in common.

All encryption, decryption and multiplication of ciphertexts is SEAL's. Ours is what lies around it: how
secrets become keys of SEAL's (:mod:`~tacit.crypto.seal.ring`), which bytes of its ciphertexts travel
(:mod:`~tacit.crypto.seal.blob`, :mod:`~tacit.crypto.seal.residues`), and the addition of many
(:mod:`~tacit.crypto.seal.adder`).
"""
