export const Documents = () => <h1>Documents</h1>
